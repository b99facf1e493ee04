/*
 * link.h - the capture half on a connection: records in, results out.
 *
 *   connection -> [link] -> intake -> ingest
 *        ^           |
 *        +-- frames -+
 *
 * A connection whose first frame is HELLO. HELLO_ACK follows as soon as the
 * database has said how far the ring's session is, however long that takes;
 * PING is answered meanwhile and always. Then DATA goes to the intake and
 * each committed one comes back as RESULT, on this connection only. A newer
 * HELLO of the same session fences this one.
 *
 * Held in memory: one frame, and what the intake's credit allows. A worker
 * that sends past its credit, or half a frame and nothing more for
 * LINK_IDLE_MS, or does not read its answers for as long, is closed; a
 * silent one is not.
 */

#ifndef EDGE_LINK_H
#define EDGE_LINK_H

#include "edge/connection.h"
#include "edge/intake.h"

#define LINK_IDLE_MS 30000

/* Where links bring their records, and what HELLO_ACK tells of it. */
struct link_place {
    struct intakes *intakes;
    const struct lane *lane; /* the database's clock */
    struct meter_str instance;
    uint64_t config_version;
};

/*
 * Speaks on the connection from now on. bytes begin with a whole HELLO frame
 * and move in. place outlives the link. False: no memory, logged.
 */
MUST_CHECK bool link_attach(struct connection *connection,
                            const struct link_place *place, struct buf *bytes);

#endif
