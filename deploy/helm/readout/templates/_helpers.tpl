{{- /* Kubernetes adds eleven characters to the name of a StatefulSet in a label of 63 at most. */ -}}
{{- define "readout.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "readout.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "readout.labels" -}}
{{ include "readout.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "readout.image" -}}
{{- if .Values.image.digest -}}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "readout.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}{{ .Values.serviceAccount.name | default (include "readout.name" .) }}
{{- else -}}{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "readout.secret" -}}
{{- if and .Values.existingSecret .Values.secrets -}}{{- fail "existingSecret and secrets exclude each other" -}}{{- end -}}
{{- if .Values.existingSecret -}}{{ .Values.existingSecret }}
{{- else if .Values.secrets -}}{{ include "readout.name" . }}
{{- end -}}
{{- end -}}

{{- /* Helm reads YAML 1.1, in which the key no, as of a site in Norway, becomes false. */ -}}
{{- define "readout.refuseLostNames" -}}
{{- if kindIs "map" .value -}}
{{- range $name, $value := .value -}}
{{- if has $name (list "true" "false") -}}
{{- fail (printf "%s has the name %s: Helm reads no, off and n as false, yes, on and y as true; quote them" $.path $name) -}}
{{- end -}}
{{- include "readout.refuseLostNames" (dict "path" (printf "%s.%s" $.path $name) "value" $value) -}}
{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- range .value -}}{{- include "readout.refuseLostNames" (dict "path" $.path "value" .) -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The file as the program reads it. The addresses are those of the container's ports. */ -}}
{{- define "readout.config" -}}
{{- include "readout.refuseLostNames" (dict "path" "config" "value" .Values.config) -}}
{{- if not (kindIs "invalid" .Values.config.listen) -}}
{{- fail "config.listen is set by the chart: pods answer on 8080 without TLS, which ends at the ingress" -}}
{{- end -}}
{{- if not (kindIs "invalid" .Values.config.admin) -}}{{- fail "config.admin is set by the chart: 8082" -}}{{- end -}}
{{- range $key := list "spool" "listen" -}}
{{- if hasKey ($.Values.config.intake | default dict) $key -}}{{- fail (printf "config.intake.%s is set by the chart" $key) -}}{{- end -}}
{{- end -}}
{{- $fixed := dict "listen" "0.0.0.0:8080" "admin" (dict "listen" "0.0.0.0:8082") -}}
{{- if .Values.intake.enabled -}}
{{- $_ := set $fixed "intake" (dict "spool" "/var/lib/readout/spool.db") -}}
{{- else -}}
{{- /* Without a volume no report could be kept, and their senders would be told that all is well. */ -}}
{{- if not (kindIs "invalid" .Values.config.intake) -}}{{- fail "config.intake needs intake.enabled: true" -}}{{- end -}}
{{- range $id, $site := .Values.config.sites -}}
{{- if and $site (not (kindIs "invalid" $site.frontend)) -}}
{{- fail (printf "config.sites.%s.frontend needs intake.enabled: true" $id) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.config) $fixed) -}}
{{- end -}}

{{- define "readout.pod" -}}
metadata:
  labels:
    {{- include "readout.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "readout.serviceAccount" . | quote }}
  # It asks Kubernetes nothing.
  automountServiceAccountToken: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  # 5 s of preStop, 20 s for the answers under way, 8 s for what is written last, and 2 s to spare.
  terminationGracePeriodSeconds: 35
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  containers:
    - name: readout
      image: {{ include "readout.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      ports:
        - { name: http, containerPort: 8080 }
        - { name: admin, containerPort: 8082 }
      {{- with .Values.extraEnv }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.envFromSecrets }}
      envFrom:
        {{- range . }}
        - secretRef: { name: {{ . | quote }} }
        {{- end }}
      {{- end }}
      # The program listens only after it has asked its sources who they are; a minute is allowed.
      startupProbe: { httpGet: { path: /livez, port: admin }, periodSeconds: 1, failureThreshold: 60 }
      livenessProbe: { httpGet: { path: /livez, port: admin }, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 3 }
      readinessProbe: { httpGet: { path: /readyz, port: admin }, periodSeconds: 5, timeoutSeconds: 3, failureThreshold: 2 }
      # Load balancers still send requests for a moment. Needs no shell in the image.
      lifecycle: { preStop: { sleep: { seconds: 5 } } }
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - { name: config, mountPath: /etc/readout, readOnly: true }
        {{- if include "readout.secret" . }}
        - { name: secrets, mountPath: /run/secrets/readout, readOnly: true }
        {{- end }}
        {{- if .Values.intake.enabled }}
        - { name: spool, mountPath: /var/lib/readout }
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap: { name: {{ include "readout.name" . }} }
    {{- if include "readout.secret" . }}
    - name: secrets
      secret: { secretName: {{ include "readout.secret" . | quote }}, defaultMode: 0440 }
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if .Values.topologySpread }}
  topologySpreadConstraints:
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "readout.selector" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
