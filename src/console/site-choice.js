// The sites that the token may see, as the server has last told them, and the choice of one.
import { requestViewer } from "./base/api.js";
import { createField, createSelect, fillSelect } from "./base/dom.js";

/** @typedef {import("./base/api.js").Site} Site */

/** @param {(site: string) => void} choose */
export function createSiteChoice(choose) {
  /** Undefined until the server has told. @type {readonly Site[] | undefined} */
  let sites;
  const select = createSelect([], choose);
  return {
    field: createField("Site", select, "site"),
    /** How many there are, undefined until the server has told. */
    get count() {
      return sites?.length;
    },
    /** @param {string} id empty for the first one @returns {Site | undefined} */
    find: (id) => (id === "" ? sites?.[0] : sites?.find((site) => site.id === id)),
    /** @param {string} id empty for none */
    write(id) {
      select.value = id;
    },
    forget() {
      sites = undefined;
    },
    /** Asks the server. @param {AbortSignal} signal @returns {Promise<string>} whose token it is @throws {Failure} */
    async read(signal) {
      const viewer = await requestViewer(signal);
      ({ sites } = viewer);
      fillSelect(
        select,
        viewer.sites.map(({ id }) => [id, id]),
      );
      return viewer.user;
    },
  };
}
