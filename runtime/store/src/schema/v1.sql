CREATE TABLE state (
    -- The one row of what the store knows of itself.
    one INTEGER PRIMARY KEY CHECK (one = 1),
    -- Number of the last fact ever written, also when it was trimmed since.
    last_seq INTEGER NOT NULL,
    -- Boot id of the last run.
    boot_id TEXT,
    -- 'closed' after a clean end, 'open' while in use, 'suspect' after damage was seen.
    condition TEXT NOT NULL CHECK (condition IN ('closed', 'open', 'suspect'))
) STRICT;

CREATE TABLE sandboxes (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    phase TEXT NOT NULL,
    -- Nanoseconds since 1970.
    created_at INTEGER NOT NULL,
    -- The whole record as JSON; the other columns repeat parts of it.
    body TEXT NOT NULL
) STRICT;

CREATE TABLE containers (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    sandbox TEXT NOT NULL,
    phase TEXT NOT NULL,
    -- Nanoseconds since 1970.
    created_at INTEGER NOT NULL,
    -- The whole record as JSON; the other columns repeat parts of it.
    body TEXT NOT NULL
) STRICT;

CREATE INDEX containers_by_sandbox ON containers (sandbox);

CREATE TABLE events (
    -- Rises by one, is never used again.
    seq INTEGER PRIMARY KEY,
    -- Nanoseconds since 1970.
    at INTEGER NOT NULL,
    sandbox TEXT,
    container TEXT,
    exec TEXT,
    -- What happened, as one word.
    kind TEXT NOT NULL,
    -- What happened, with its details, as JSON.
    body TEXT NOT NULL
) STRICT;

CREATE INDEX events_by_sandbox ON events (sandbox) WHERE sandbox IS NOT NULL;
CREATE INDEX events_by_container ON events (container) WHERE container IS NOT NULL;

-- For people: the journal with readable times.
CREATE VIEW history AS
    SELECT seq, strftime('%Y-%m-%dT%H:%M:%fZ', at / 1e9, 'unixepoch') AS time, sandbox, container, exec, kind, body
    FROM events;
