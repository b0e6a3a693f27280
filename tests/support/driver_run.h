/* driver_run.h - runs tests/actors/driver_program.c, to kill it or a process below it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_DRIVER_RUN_H
#define TDM_TESTS_DRIVER_RUN_H

#include <stdint.h>
#include <sys/types.h>

enum { DRIVER_ACTORS = 3 };

/* A driver program with its node and actors. */
struct driver_run {
    int is_open;        /* 1 from driver_start() to driver_leftovers(). */
    char temporary[32]; /* Its $TMPDIR, which is in the environment of all its descendants. */
    pid_t driver;
    pid_t supervisor;
    pid_t daemon;
    pid_t redis;
    pid_t actors[DRIVER_ACTORS];
    int output;
    char buffer[4096]; /* Output that the test has not read yet. */
    size_t buffered;
};

/* Starts the driver and waits until its calls are running. Ends the test program if that fails.
 * `argument` may be NULL. */
void driver_start(struct driver_run *run, const char *argument);
/* Does the same in the $TMPDIR of an earlier driver. */
void driver_start_in(struct driver_run *run, const char *temporary, const char *argument);
/* Reads the next line of output without its end. Returns 0 if no line comes in time. */
int driver_line(struct driver_run *run, char *line, size_t room, int64_t timeout_ms);
/* Returns the child of `parent` whose name begins with `name`; 0 if there is none. */
pid_t driver_find_child(pid_t parent, const char *name);
/* Waits for the driver to end. Returns its wait status, or -1 after killing it if it has not ended
 * in time. */
int driver_end(struct driver_run *run, int64_t timeout_ms);
/* Waits until nothing is left of the driver, or until the timeout. Prints, kills and removes the
 * remaining processes below it and files in its $TMPDIR, and returns their number. */
int driver_leftovers(struct driver_run *run, int64_t timeout_ms);

#endif
