-- dead_letter_take - dead letters that are to be booked, deleted: who gets
-- the row books the record, in the same transaction.
--
-- $1::uuid[]    session
-- $2::bigint[]  seq
--
-- Rows, in no order: place bigint, from 1 on, of each letter that was there.
-- A letter that is missing was replayed by someone else.
DELETE FROM meter.dead_letter
USING unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY
    AS wanted (session, seq, place)
WHERE dead_letter.session = wanted.session
    AND dead_letter.seq = wanted.seq
RETURNING wanted.place;
