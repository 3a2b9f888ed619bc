// The Helm chart: linted, rendered for five files of values, and each object held against the schemas of Kubernetes. Helm is
// built from its Go module and the schemas come from PyPI, both into the cache of the servers.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseAllDocuments, parse as parseYaml } from "yaml";
import { kinds } from "#resolvers/index.ts";
import { parseConfig } from "#src/config/config.ts";
import { buildGoPrograms } from "../../servers/go-programs.ts";
import { installPythonPackage } from "../../servers/python-package.ts";

const chart = "deploy/helm/readout";
const values = readdirSync(join(chart, "ci")).map((file) => file.replace(".yaml", ""));
/** What the schemas of Kubernetes do not have. */
const ownResources = ["ServiceMonitor"];
const kubernetesVersions = ["1.30", "1.33"];

interface Named {
  readonly name: string;
}
interface Rendered {
  readonly kind: string;
  readonly metadata: Named;
  readonly data?: Readonly<Record<string, string>>;
  readonly spec: Spec;
}
/** What the objects of the chart have, each a part of it. */
interface Spec {
  readonly replicas?: number;
  readonly template: { readonly metadata: { readonly labels: object }; readonly spec: PodSpec };
  readonly volumeClaimTemplates?: readonly Rendered[];
  readonly serviceName?: string;
  readonly clusterIP?: string;
  readonly type: string;
  readonly selector: object;
  readonly ports: readonly { readonly targetPort: string }[];
  readonly rules: readonly {
    readonly http: { readonly paths: readonly { readonly backend: { readonly service: Named } }[] };
  }[];
  readonly metrics: readonly {
    readonly resource?: Named & { readonly target: object };
    readonly pods?: { readonly metric: Named };
  }[];
}
interface PodSpec {
  readonly automountServiceAccountToken: boolean;
  readonly priorityClassName?: string;
  readonly serviceAccountName: string;
  readonly securityContext: object;
  readonly containers: readonly [
    {
      readonly securityContext: object;
      readonly ports: readonly Named[];
      readonly volumeMounts: readonly Named[];
      readonly envFrom?: readonly { readonly secretRef: Named }[];
    },
  ];
  readonly volumes: readonly (Named & {
    readonly configMap?: Named;
    readonly secret?: { readonly secretName: string };
  })[];
}

let folder: string;
let helm: string;
let validate: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "readout-chart-"));
  const programs = await buildGoPrograms({
    folder: "helm-3.19.2",
    module: "helm.sh/helm/v3",
    version: "v3.19.2",
    packages: ["cmd/helm"],
    flags: ["-ldflags=-s -w"],
  });
  helm = join(programs, "helm");
  validate = join(installPythonPackage("kubernetes-validate", "1.37.0"), "kubernetes-validate");
}, 900_000);
afterAll(() => rmSync(folder, { recursive: true }));

const run = (...args: string[]): string => execFileSync(helm, args, { encoding: "utf8" });
const printChart = (name: string, ...args: string[]): string =>
  run(
    "template",
    "readout",
    chart,
    "--namespace",
    "monitoring",
    "--kube-version",
    "1.30.0",
    "-f",
    `${chart}/ci/${name}.yaml`,
    ...args,
  );
const render = (name: string, ...args: string[]): readonly Rendered[] =>
  parseAllDocuments(printChart(name, ...args)).flatMap((document) => document.toJS() ?? []);
const find = (objects: readonly Rendered[], kind: string) => objects.filter((object) => object.kind === kind);
const listNames = (named: readonly Named[]) => named.map(({ name }) => name);

/** What makes the pods. */
function findWorkload(objects: readonly Rendered[]): Spec {
  const [workload, ...others] = objects.filter(({ kind }) => kind === "Deployment" || kind === "StatefulSet");
  if (workload === undefined || others.length > 0) throw new Error("expected one workload");
  return workload.spec;
}

describe.each(values)("with %s.yaml the chart", (name) => {
  test("passes helm lint", () => {
    expect(run("lint", "--strict", chart, "-f", `${chart}/ci/${name}.yaml`)).toContain("0 chart(s) failed");
  });

  test.each(kubernetesVersions)("is valid on Kubernetes %s", (version) => {
    const known = render(name).filter(({ kind }) => !ownResources.includes(kind));
    expect(known.length).toBeGreaterThanOrEqual(4);
    const file = join(folder, `${name}.yaml`);
    writeFileSync(file, known.map((object) => JSON.stringify(object)).join("\n---\n"));
    execFileSync(validate, ["--strict", "--kubernetes-version", version, file]);
  });

  test("has a configuration that the program takes", () => {
    const [map] = find(render(name), "ConfigMap");
    const config = parseConfig(map?.data?.["readout.yaml"] ?? "", "/etc/readout/readout.yaml", {
      kinds,
      env: {},
      readText: (path) => (path.startsWith("/run/secrets/readout/") ? "a secret" : ""),
    });
    expect(config).toMatchObject({ listen: { port: 8080 }, admin: { listen: { port: 8082 } } });
  });

  test("names what is there", () => {
    const objects = render(name);
    const { template, volumeClaimTemplates = [] } = findWorkload(objects);
    const { containers, volumes } = template.spec;
    const [{ ports, volumeMounts }] = containers;
    expect(volumes.flatMap(({ configMap }) => configMap?.name ?? [])).toContain(
      find(objects, "ConfigMap")[0]?.metadata.name,
    );
    const claims = volumeClaimTemplates.map(({ metadata }) => metadata.name);
    expect(listNames(volumeMounts).toSorted()).toEqual([...listNames(volumes), ...claims].toSorted());
    for (const { spec } of find(objects, "Service")) {
      expect(template.metadata.labels).toMatchObject(spec.selector);
      expect(listNames(ports)).toEqual(
        expect.arrayContaining(spec.ports.map(({ targetPort }) => targetPort)),
      );
    }
  });
});

describe("the chart", () => {
  test("keeps reports on a volume of each pod where they are taken in", () => {
    const kindsOf = (name: string) => render(name).map(({ kind }) => kind);
    expect(kindsOf("intake")).toContain("StatefulSet");
    expect(kindsOf("intake")).not.toContain("Deployment");
    expect(kindsOf("smallest")).toContain("Deployment");
    expect(findWorkload(render("intake")).volumeClaimTemplates).toHaveLength(1);
  });

  test("gives the program no right that it does not need", () => {
    for (const name of values) {
      const { spec } = findWorkload(render(name)).template;
      const { securityContext, containers, automountServiceAccountToken } = spec;
      expect(automountServiceAccountToken).toBe(false);
      expect(securityContext).toMatchObject({
        runAsNonRoot: true,
        seccompProfile: { type: "RuntimeDefault" },
      });
      expect(containers[0].securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ["ALL"] },
      });
    }
  });

  test("publishes neither probes nor metrics", () => {
    const objects = render("public");
    const backends = find(objects, "Ingress").flatMap(({ spec }) =>
      spec.rules.flatMap(({ http }) => http.paths.map(({ backend }) => backend.service)),
    );
    expect(backends).toHaveLength(2);
    for (const service of backends) expect(service).toEqual({ name: "readout", port: { name: "http" } });
    const [open] = find(objects, "Service").filter(({ spec }) => spec.type === "LoadBalancer");
    expect(open?.spec.ports.map(({ targetPort }) => targetPort)).toEqual(["http"]);
  });

  test("scales by processor time and open streams", () => {
    const [scaler] = find(render("public"), "HorizontalPodAutoscaler");
    expect(scaler?.spec.metrics.map(({ pods, resource }) => pods?.metric.name ?? resource?.name)).toEqual([
      "cpu",
      "readout_open_streams",
    ]);
    // Of the core that an instance can use, not of the quarter that it requests.
    expect(scaler?.spec.metrics[0]?.resource?.target).toEqual({ type: "AverageValue", averageValue: "700m" });
    expect(findWorkload(render("public")).replicas).toBeUndefined();
  });

  test("makes a disruption budget only where a pod may go", () => {
    expect(find(render("smallest"), "PodDisruptionBudget")).toHaveLength(1);
    expect(find(render("secrets"), "PodDisruptionBudget")).toHaveLength(0);
    expect(find(render("public", "--set", "autoscaling.minReplicas=1"), "PodDisruptionBudget")).toHaveLength(
      1,
    );
  });

  test.each([
    ["config=null", "missing property 'config'"],
    ["config.backends=null", "at '/config/backends': got null"],
    ["config.sites=null", "at '/config/sites': got null"],
    ["extraEnv[0].name=PORT,extraEnv[0].value=8080", "want string"],
    ...[
      "image",
      "replicas",
      "service",
      "ingress",
      "autoscaling",
      "podDisruptionBudget",
      "intake",
      "networkPolicy",
      "serviceMonitor",
      "serviceAccount",
    ].map((name) => [`${name}=null`, `missing property '${name}'`]),
    ["intake.enabled=null", "missing property 'enabled'"],
    ["config.listen=0.0.0.0:9", "config.listen is set by the chart"],
    ["config.admin.listen=0.0.0.0:9", "config.admin is set by the chart"],
    ["intake.enabled=true,config.intake.spool=/tmp/a", "config.intake.spool is set by the chart"],
    ["intake.enabled=true,config.intake.listen=0.0.0.0:9", "config.intake.listen is set by the chart"],
    ["config.sites.false.retention=30d", "config.sites has the name false"],
    ["config.backends.true.kind=memory", "config.backends has the name true"],
    [
      "config.sites.blog.logs[0].sources.false.index=logs",
      "config.sites.blog.logs.sources has the name false",
    ],
    ["existingSecret=own,secrets.key=text", "existingSecret and secrets exclude each other"],
    ["autoscaling.enabled=true,autoscaling.minReplicas=9", "autoscaling.minReplicas is more"],
    ["replica=3", "replica"],
    ["image.digest=abc", "digest"],
    ["ingress.enabled=true", "hosts"],
    ["config.intake.proxies=1", "config.intake needs intake.enabled: true"],
    ["config.sites.shop.frontend.index=reports", "config.sites.shop.frontend needs intake.enabled: true"],
  ])("refuses %s", (setting = "", named = "") => {
    const call = () =>
      execFileSync(
        helm,
        ["template", chart, "--kube-version", "1.30.0", "-f", `${chart}/ci/smallest.yaml`, "--set", setting],
        { stdio: ["ignore", "pipe", "pipe"] },
      );
    expect(call).toThrow(named);
  });

  test("says what its defaults lack", () => {
    const call = () => execFileSync(helm, ["template", chart, "--kube-version", "1.30.0"], { stdio: "pipe" });
    expect(call).toThrow("at '/config': missing properties 'backends', 'sites'");
  });

  test("may be a part of another chart, under a condition", () => {
    expect(() => render("smallest", "--set", "enabled=true")).not.toThrow();
  });

  test("keeps names that YAML reads as numbers", () => {
    const names =
      "priorityClassName=1,serviceAccount.name=2,existingSecret=3,envFromSecrets[0]=4,intake.storageClassName=5";
    const { template, volumeClaimTemplates = [] } = findWorkload(render("intake", "--set-string", names));
    const { priorityClassName, serviceAccountName, containers, volumes } = template.spec;
    const [{ envFrom }] = containers;
    const secrets = volumes.flatMap(({ secret }) => secret?.secretName ?? []);
    expect([priorityClassName, serviceAccountName, ...secrets, envFrom?.[0]?.secretRef.name]).toEqual([
      "1",
      "2",
      "3",
      "4",
    ]);
    expect(volumeClaimTemplates[0]?.spec).toMatchObject({ storageClassName: "5" });
    const [ingress] = find(render("public", "--set-string", "ingress.className=6"), "Ingress");
    expect(ingress?.spec).toMatchObject({ ingressClassName: "6" });
  });

  test("names the headless service of its pods", () => {
    const objects = render("intake");
    const headless = find(objects, "Service").filter(({ spec }) => spec.clusterIP === "None");
    expect(listNames(headless.map(({ metadata }) => metadata))).toEqual([findWorkload(objects).serviceName]);
  });

  test("leaves the user to the cluster where it is told so", () => {
    const ids = ["runAsUser", "runAsGroup", "fsGroup"];
    const settings = ids.map((name) => `podSecurityContext.${name}=null`);
    const { spec } = findWorkload(render("intake", "--set", settings.join())).template;
    expect(spec.securityContext).toEqual({ runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } });
  });

  test("has the version of the program", () => {
    const { version, appVersion } = parseYaml(readFileSync(join(chart, "Chart.yaml"), "utf8"));
    const { version: own } = JSON.parse(readFileSync("package.json", "utf8"));
    expect([version, appVersion]).toEqual([own, own]);
  });

  test("is what the plain manifests are made of", () => {
    expect(readFileSync("deploy/kubernetes/readout.yaml", "utf8").split("---\n").slice(1).join("---\n")).toBe(
      printChart("smallest").split("---\n").slice(1).join("---\n"),
    );
  });
});
