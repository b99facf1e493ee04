-- token_revoke - ends a bearer token; a second time changes nothing.
--
-- $1::text  token_id
--
-- Row, or none when there is no such token: tenant text, revoked_at
-- timestamptz. Runs as meter_owner.
UPDATE meter.api_token
SET revoked_at = COALESCE(revoked_at, clock_timestamp())
WHERE token_id = $1::text
RETURNING
    tenant,
    revoked_at;
