-- Who has or had a name, for whoever asks about what is gone; as long as the journal has something of them.
CREATE TABLE names (
    kind TEXT NOT NULL CHECK (kind IN ('sandbox', 'container')),
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    -- The pod that a container is in.
    sandbox TEXT,
    -- Nanoseconds since 1970.
    created_at INTEGER NOT NULL,
    -- Number of the last fact when its record was last changed: when that fact is trimmed, so are all of its own.
    seq INTEGER NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX names_by_name ON names (name);
CREATE INDEX names_by_seq ON names (seq);

INSERT INTO names (kind, id, name, sandbox, created_at, seq)
    SELECT 'sandbox', id, name, NULL, created_at, last_seq FROM sandboxes, state
    UNION ALL SELECT 'container', id, name, sandbox, created_at, last_seq FROM containers, state;
