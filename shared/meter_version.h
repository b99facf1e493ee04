/*
 * meter_version.h - the version of this source, in one place.
 *
 * The Makefile reads it from here for `make dist`.
 */

#ifndef METER_VERSION_H
#define METER_VERSION_H

#define METER_VERSION "0.1.0"

#endif
