// What existing clients may ask for of an incident's course: who has changed it, and in which trackers it stands. Readout only reads
// and keeps no state, so that no incident has any; a document with such fields is valid.

export const logbookTypes = /* GraphQL */ `
  type Asana implements IntegrationInterface {
    formData: AsanaFormData
    name: String!
    needsMigration: Boolean!
    tasks: [AsanaTask]!
  }
  type AsanaFormData implements IntegrationFormDataInterface {
    body: String!
    title: String!
  }
  type AsanaTask implements IntegrationResultInterface {
    description: String!
    id: String!
    remoteId: String!
    title: String!
    url: String!
  }
  type AssigneeChange implements ItemInterface & ViaInterface {
    addedAssignees: [User!]!
    author: User
    createdAt: DateTime!
    currentAssignees: [User!]!
    id: String!
    previousAssignees: [User!]!
    removedAssignees: [User!]!
    updatedAt: DateTime!
    via: String
  }
  type GitHub implements IntegrationInterface {
    formData: GitHubFormData
    issues: [GitHubIssue]
    name: String!
    needsMigration: Boolean!
  }
  type GitHubFormData implements IntegrationFormDataInterface {
    body: String!
    title: String!
  }
  type GitHubIssue implements IntegrationResultInterface {
    description: String!
    id: String!
    remoteId: String!
    title: String!
    url: String!
  }
  type GitLab implements IntegrationInterface {
    formData: GitLabFormData
    issues: [GitLabIssue]
    name: String!
    needsMigration: Boolean!
  }
  type GitLabFormData implements IntegrationFormDataInterface {
    body: String!
    title: String!
  }
  type GitLabIssue implements IntegrationResultInterface {
    description: String!
    id: String!
    remoteId: String!
    title: String!
    url: String!
  }
  union Integration = Asana | GitHub | GitLab | Jira | Linear | Phabricator | PivotalTracker | Shortcut | Trello
  type IntegrationCreate implements ItemInterface & ViaInterface {
    author: User
    createdAt: DateTime!
    id: String!
    name: String
    updatedAt: DateTime!
    url: String!
    via: String
  }
  interface IntegrationFormDataInterface {
    body: String!
    title: String!
  }
  interface IntegrationInterface {
    name: String!
    needsMigration: Boolean!
  }
  interface IntegrationResultInterface {
    description: String!
    id: String!
    remoteId: String!
    title: String!
    url: String!
  }
  interface ItemInterface {
    author: User
    createdAt: DateTime!
    id: String!
    updatedAt: DateTime!
  }
  type Jira implements IntegrationInterface {
    formData: JiraFormData
    issues: [JiraIssue]
    name: String!
    needsMigration: Boolean!
  }
  type JiraFormData implements IntegrationFormDataInterface {
    body: String!
    title: String!
  }
  type JiraIssue implements IntegrationResultInterface {
    description: String!
    id: String!
    remoteId: String!
    title: String!
    url: String!
  }
  type Linear implements IntegrationInterface {
    formData: LinearFormData
    issues: [LinearIssue]
    name: String!
    needsMigration: Boolean!
  }
  type LinearFormData implements IntegrationFormDataInterface {
    body: String!
    title: String!
  }
  type LinearIssue implements IntegrationResultInterface {
    description: String!
    id: String!
    remoteId: String!
    title: String!
    url: String!
  }
  type Logbook {
    id: String!
    items: [LogbookItem!]!
    pinnedNoteId: String
  }
  union LogbookItem = AssigneeChange | IntegrationCreate | ManualAlertStateChange | Note | NotificationFrequencyChange | NotificationThresholdChange | NotifierResult | SeverityChange | StateChange
  type ManualAlertStateChange implements ItemInterface & ViaInterface {
    author: User
    createdAt: DateTime!
    currentState: AlertStateEnum!
    id: String!
    previousState: AlertStateEnum
    updatedAt: DateTime!
    via: String
  }
  type Note implements ViaInterface {
    author: User
    content: String!
    createdAt: DateTime!
    id: String!
    updatedAt: DateTime!
    via: String
    viewerCanDelete: Boolean!
  }
  type NotificationFrequencyChange implements ItemInterface & ViaInterface {
    author: User
    createdAt: DateTime!
    currentFrequency: IncidentNotificationFrequencyEnum!
    id: String!
    previousFrequency: IncidentNotificationFrequencyEnum
    updatedAt: DateTime!
    via: String
  }
  type NotificationThresholdChange implements ItemInterface & ViaInterface {
    author: User
    createdAt: DateTime!
    currentThreshold: Int!
    id: String!
    previousThreshold: Int
    updatedAt: DateTime!
    via: String
  }
  type NotifierResult implements ItemInterface {
    author: User
    createdAt: DateTime!
    id: String!
    results: [Result!]!
    updatedAt: DateTime!
  }
  type Phabricator implements IntegrationInterface {
    formData: PhabricatorFormData
    issues: [PhabricatorIssue]
    name: String!
    needsMigration: Boolean!
  }
  type PhabricatorFormData implements IntegrationFormDataInterface {
    body: String!
    priorities: [KeyStringValue]
    title: String!
  }
  type PhabricatorIssue implements IntegrationResultInterface {
    description: String!
    id: String!
    priority: String!
    remoteId: String!
    title: String!
    url: String!
  }
  type PivotalTracker implements IntegrationInterface {
    formData: PivotalTrackerFormData
    name: String!
    needsMigration: Boolean!
    stories: [PivotalTrackerStory]
  }
  type PivotalTrackerFormData implements IntegrationFormDataInterface {
    body: String!
    title: String!
  }
  type PivotalTrackerStory implements IntegrationResultInterface {
    description: String!
    id: String!
    remoteId: String!
    title: String!
    url: String!
  }
  type Result {
    errorCount: Int!
    errorLast: DateTime
    notifier: Notifier
    successCount: Int!
    successLast: DateTime
  }
  type SeverityChange implements ItemInterface & ViaInterface {
    author: User
    createdAt: DateTime!
    currentSeverity: IncidentSeverityEnum!
    id: String!
    previousSeverity: IncidentSeverityEnum
    updatedAt: DateTime!
    via: String
  }
  type Shortcut implements IntegrationInterface {
    formData: ShortcutFormData
    name: String!
    needsMigration: Boolean!
    stories: [ShortcutStory]
  }
  type ShortcutFormData implements IntegrationFormDataInterface {
    body: String!
    title: String!
  }
  type ShortcutStory implements IntegrationResultInterface {
    description: String!
    id: String!
    remoteId: String!
    title: String!
    url: String!
  }
  type StateChange implements ItemInterface & ViaInterface {
    author: User
    createdAt: DateTime!
    currentState: IncidentStateEnum!
    id: String!
    previousState: IncidentStateEnum
    updatedAt: DateTime!
    via: String
  }
  type Trello implements IntegrationInterface {
    cards: [TrelloCard]
    formData: TrelloFormData
    name: String!
    needsMigration: Boolean!
  }
  type TrelloCard implements IntegrationResultInterface {
    description: String!
    id: String!
    listId: String!
    remoteId: String!
    title: String!
    url: String!
  }
  type TrelloFormData implements IntegrationFormDataInterface {
    body: String!
    lists: [KeyStringValue!]!
    title: String!
  }
  interface ViaInterface {
    via: String
  }
`;
