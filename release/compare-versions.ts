/** Orders versions by their precedence: `1.0.0-rc.1` before `1.0.0`, and `0.9.0` before `0.10.0`. */
export function compareVersions(one: string, other: string): number {
  const [core = "", ...rest] = one.split("-");
  const [otherCore = "", ...otherRest] = other.split("-");
  const byCore = core.localeCompare(otherCore, "en", { numeric: true });
  if (byCore !== 0) return byCore;
  const isRelease = Number(rest.length === 0);
  const isOtherRelease = Number(otherRest.length === 0);
  return (
    isRelease - isOtherRelease || rest.join("-").localeCompare(otherRest.join("-"), "en", { numeric: true })
  );
}
