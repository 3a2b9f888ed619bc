// Namespaces of data streams as environments. `readout init` proposes a site for each, so that no pattern of it may hold several.

/** More namespaces than this are tenants rather than environments. */
const maxEnvironments = 12;

/** Whether each of these namespaces becomes a site. */
export function areEnvironments(namespaces: readonly string[]): boolean {
  return namespaces.length > 1 && namespaces.length <= maxEnvironments;
}
