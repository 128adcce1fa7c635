-- One row for each account that is not full. Keys are hashes of one length; states
-- are opaque, about 40 bytes, and up to 100 kB for a rolling log of 10,000 entries.
create table if not exists ration_accounts (
	key     bytea       primary key,
	state   bytea       not null,
	full_at timestamptz not null -- the row can be deleted from then on
);
create index if not exists ration_accounts_full_at on ration_accounts (full_at);
