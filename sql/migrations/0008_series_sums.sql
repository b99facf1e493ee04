-- 0008 series sums: a sum of samples may have more digits than a sample.
--
-- 2^63 samples of 38 digits, as many as count tells, make 57 digits. The scale
-- stays, so no row is written again: the tables are locked for a moment only.

ALTER TABLE meter.series_5s ALTER COLUMN sum TYPE numeric(57, 9);
ALTER TABLE meter.series_1m ALTER COLUMN sum TYPE numeric(57, 9);
ALTER TABLE meter.series_1h ALTER COLUMN sum TYPE numeric(57, 9);
ALTER TABLE meter.series_1d ALTER COLUMN sum TYPE numeric(57, 9);
ALTER TABLE meter.series_7d ALTER COLUMN sum TYPE numeric(57, 9);
