// The sites that the token may see, as the server has last told them, and the choice of one.
import { requestViewer } from "./base/api.js";
import { createField, createSelect, fillSelect } from "./base/dom.js";

/** @typedef {import("./base/api.js").Site} Site */

/** @param {(site: string) => void} choose */
export function createSiteChoice(choose) {
  /** Undefined until the server has told. @type {readonly Site[] | undefined} */
  let sites;
  const select = createSelect([], choose);

  /** @param {string} id empty for the first one @returns {Site | undefined} */
  function find(id) {
    return id === "" ? sites?.[0] : sites?.find((site) => site.id === id);
  }

  /** Asks the server. @param {AbortSignal} signal @returns {Promise<string>} whose token it is @throws {Failure} */
  async function read(signal) {
    const viewer = await requestViewer(signal);
    const ids = viewer.sites.map(({ id }) => id);
    // A list that is open would close.
    if (ids.join() !== sites?.map(({ id }) => id).join()) {
      const { value } = select;
      fillSelect(
        select,
        ids.map((id) => [id, id]),
      );
      select.value = value;
    }
    ({ sites } = viewer);
    return viewer.user;
  }

  return {
    find,
    read,
    field: createField("Site", select, "site"),
    /** How many there are, undefined until the server has told. */
    get count() {
      return sites?.length;
    },
    /** @param {string} id empty for none */
    write(id) {
      select.value = id;
    },
    forget() {
      sites = undefined;
    },
    /**
     * Asks the server again. What cannot be read is as it was.
     * @param {string} id @param {AbortSignal} signal @returns {Promise<boolean>} whether that site is another one now
     */
    async check(id, signal) {
      const before = JSON.stringify(find(id));
      await read(signal).catch(() => undefined);
      return sites !== undefined && JSON.stringify(find(id)) !== before;
    },
  };
}
