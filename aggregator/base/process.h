/*
 * process.h - what a process sets up before anything else.
 */

#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

/* Exit statuses of every command. */
enum process_exit {
    PROCESS_OK = 0,
    PROCESS_FAILED = 1, /* it was tried; the reason is on stderr */
    PROCESS_USAGE = 2   /* the command line is wrong */
};

/*
 * No core dumps (they would hold tokens), SIGPIPE ignored, as many file
 * descriptors as allowed, files of ours closed to others; the heap keeps up
 * to 16 MiB of freed pages.
 */
void process_prepare(void);

#endif
