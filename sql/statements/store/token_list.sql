-- token_list - bearer tokens, oldest first.
--
-- $1::text  tenant, NULL: all
--
-- Rows: token_id text, tenant text, scopes text (separated by spaces),
-- label text, created_at timestamptz, expires_at and revoked_at timestamptz or
-- NULL. Runs as meter_owner.
SELECT
    token_id,
    tenant,
    array_to_string(scopes, ' ') AS scopes,
    label,
    created_at,
    expires_at,
    revoked_at
FROM meter.api_token
WHERE $1::text IS NULL
    OR tenant = $1::text
ORDER BY
    created_at,
    token_id;
