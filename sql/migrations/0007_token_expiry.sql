-- 0007 token expiry: until when a bearer token is valid.

-- NULL: for ever. meter.token_find compares it with the database's clock.
ALTER TABLE meter.api_token
    ADD COLUMN expires_at timestamptz,
    ADD CONSTRAINT api_token_expires_later CHECK (expires_at >= created_at);
