-- lane_secret - the salt of ids and fingerprints.
--
-- Row: value bytea, 32 bytes.
SELECT value
FROM meter.secret
WHERE name = 'salt';
