CREATE TABLE state (
    -- The one row of what the records know of themselves.
    one INTEGER PRIMARY KEY CHECK (one = 1),
    -- Boot id of the last run.
    boot_id TEXT NOT NULL
) STRICT;

CREATE TABLE images (
    -- The whole reference, or the digest of the manifest where there is no name.
    name TEXT NOT NULL PRIMARY KEY,
    manifest TEXT NOT NULL,
    -- Nanoseconds since 1970.
    pulled_at INTEGER NOT NULL,
    -- The whole record as JSON; the other columns repeat parts of it.
    body TEXT NOT NULL
) STRICT;

-- Blobs that are whole: blobs/ALGORITHM/HEX.
CREATE TABLE blobs (
    digest TEXT NOT NULL PRIMARY KEY,
    size INTEGER NOT NULL,
    -- 1 when its bytes have to be looked at before they are used for a pull.
    doubted INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Layers: unpacking/ID while 'making', layers/ID afterwards.
CREATE TABLE layers (
    -- Never used again.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Digest of the layer with all those below it.
    chain TEXT NOT NULL,
    diff_id TEXT NOT NULL,
    -- The blob that it was unpacked from.
    blob TEXT NOT NULL,
    -- 'retired': kept for the containers that use it, and for nothing else.
    state TEXT NOT NULL CHECK (state IN ('making', 'ready', 'retired')),
    -- 1 when it has to be unpacked anew by the next pull.
    doubted INTEGER NOT NULL DEFAULT 0,
    entries INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE UNIQUE INDEX layers_by_chain ON layers (chain) WHERE state = 'ready';

-- What containers use: kept whatever happens to the image.
CREATE TABLE leases (
    holder TEXT NOT NULL,
    layer INTEGER NOT NULL,
    PRIMARY KEY (holder, layer)
) STRICT, WITHOUT ROWID;
