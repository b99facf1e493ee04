-- token_create - a new bearer token; only the digest of its secret is kept.
--
-- $1::text   token_id
-- $2::text   tenant
-- $3::bytea  digest: SHA-256 of the secret
-- $4::text   scopes, separated by spaces
-- $5::text   label
-- $6::timestamptz  expires_at, or NULL
-- $7::bigint       or in how many microseconds; both NULL: never
--
-- Row: created_at timestamptz. Runs as meter_owner. 23505: id in use. 23514:
-- expired already.
INSERT INTO meter.api_token (
    token_id,
    tenant,
    digest,
    scopes,
    label,
    created_at,
    expires_at
)
VALUES (
    $1::text,
    $2::text,
    $3::bytea,
    string_to_array($4::text, ' '),
    $5::text,
    statement_timestamp(),
    COALESCE(
        $6::timestamptz,
        statement_timestamp() + $7::bigint * interval '1 microsecond'
    )
)
RETURNING created_at;
