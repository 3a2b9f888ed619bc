// The changelog: what is not released becomes a version, and the notes of a version are what the changelog has of it.

const unreleasedHeading = "## [Unreleased]";

/** Makes a version of what is not released, and leaves nothing unreleased. @throws {Error} where nothing is, or the version is there */
export function closeUnreleased(changelog: string, version: string, date: string): string {
  if (findSection(changelog, (heading) => isHeadingOf(heading, version)) !== undefined)
    throw new Error(`CHANGELOG.md has ${version} already`);
  const unreleased = findSection(changelog, (heading) => heading === unreleasedHeading);
  if (unreleased === undefined || unreleased.body === "")
    throw new Error(`CHANGELOG.md has nothing under ${unreleasedHeading}`);
  return changelog.replace(unreleasedHeading, () => `${unreleasedHeading}\n\n## ${version} - ${date}`);
}

/** What users notice of a version, in Markdown. @throws {Error} where the changelog has nothing of it */
export function readNotes(changelog: string, version: string): string {
  const section = findSection(changelog, (heading) => isHeadingOf(heading, version));
  if (section === undefined || section.body === "") throw new Error(`CHANGELOG.md has nothing of ${version}`);
  return `${section.body}\n`;
}

function isHeadingOf(heading: string, version: string): boolean {
  return heading === `## ${version}` || heading.startsWith(`## ${version} - `);
}

interface Section {
  readonly heading: string;
  readonly body: string;
}

function findSection(changelog: string, accepts: (heading: string) => boolean): Section | undefined {
  const [, ...sections] = changelog.split(/^(?=## )/m);
  return sections
    .map((text) => {
      const [heading = "", ...lines] = text.split("\n");
      return { heading, body: lines.join("\n").trim() };
    })
    .find(({ heading }) => accepts(heading));
}
