/* driver_run.h - runs tests/actors/driver_program.c, to kill it or what it stands on. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_DRIVER_RUN_H
#define TDM_TESTS_DRIVER_RUN_H

#include <stdint.h>
#include <sys/types.h>

enum { DRIVER_ACTORS = 3 };

struct driver_run {
    int is_open;        /* from driver_start() to driver_leftovers() */
    char temporary[32]; /* its $TMPDIR: in the environment of everything below it */
    pid_t driver;
    pid_t supervisor;
    pid_t daemon;
    pid_t redis;
    pid_t actors[DRIVER_ACTORS];
    int output;
    char buffer[4096]; /* what it printed and nobody has read */
    size_t buffered;
};

/* Starts it and waits until its calls are under way; ends the test program if that fails.
 * `argument` may be NULL. */
void driver_start(struct driver_run *run, const char *argument);
/* The same in the $TMPDIR that an earlier one used. */
void driver_start_in(struct driver_run *run, const char *temporary, const char *argument);
/* The next line of its output, without the end; 0 if none comes in time, or ever. */
int driver_line(struct driver_run *run, char *line, size_t room, int64_t timeout_ms);
/* The child of `parent` whose name begins so; 0 if there is none. */
pid_t driver_find_child(pid_t parent, const char *name);
/* Waits for the driver's own end: its wait status, or -1 if it is still there (then it is
 * killed). */
int driver_end(struct driver_run *run, int64_t timeout_ms);
/* Counts what is left of it, once nothing is or the time is over: processes that were started
 * below it, files in its $TMPDIR.  Prints each, kills and removes them. */
int driver_leftovers(struct driver_run *run, int64_t timeout_ms);

#endif
