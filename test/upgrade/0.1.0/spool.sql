-- A spool of version 0.1.0: two reports wait, one was refused for good.
PRAGMA user_version = 1;
CREATE TABLE reports (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, site TEXT NOT NULL, index_name TEXT NOT NULL,
  received INTEGER NOT NULL, bytes INTEGER NOT NULL, body TEXT NOT NULL
) STRICT;
CREATE INDEX reports_of_site ON reports (site, sequence);
CREATE TABLE dead_letters (
  sequence INTEGER PRIMARY KEY, id TEXT NOT NULL, site TEXT NOT NULL, index_name TEXT NOT NULL, received INTEGER NOT NULL,
  bytes INTEGER NOT NULL, body TEXT NOT NULL, refused INTEGER NOT NULL, reason TEXT NOT NULL
) STRICT;
INSERT INTO reports VALUES
  (1, '035257c9c15d0f064e7d8c21b478ba2d', 'shop', 'logs-readout.frontend-default', 1780000000000, 216, '{"trace_id":"a"}'),
  (2, '3a657bfde9f34a43891c10b9a92a2fb7', 'blog', 'readout-frontend-blog', 1780000001000, 216, '{"trace_id":"b"}');
INSERT INTO dead_letters VALUES
  (3, '57e8a9e4ea6650b75b1838c120511c30', 'shop', 'logs-readout.frontend-default', 1780000002000, 216,
   '{"trace_id":"c"}', 1780000003000, 'mapper_parsing_exception');
UPDATE sqlite_sequence SET seq = 3 WHERE name = 'reports';
