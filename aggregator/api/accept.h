/*
 * accept.h - which form of an answer a client asks for. Pure.
 *
 *   Accept: text/csv;q=0.9, application/json;q=0.2  ->  ACCEPT_CSV
 *
 * The most specific range decides about a form, as RFC 9110 says. JSON wins
 * a tie, and where there is no header.
 */

#ifndef API_ACCEPT_H
#define API_ACCEPT_H

#include "meter_types.h"

enum accept_form {
    ACCEPT_JSON,
    ACCEPT_CSV,
    ACCEPT_NEITHER /* 406 */
};

/* Ranges that are none are passed over. */
enum accept_form accept_choose(struct meter_str header);

#endif
