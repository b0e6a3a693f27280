/* disk_log.h - which files a test's process has renamed and written to disk, in order. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_DISK_LOG_H
#define TDM_TESTS_DISK_LOG_H

/* A test that uses this log replaces fsync(2), rename(2) and renameat2(2) of its process, also for
 * the library. They still do what they did, and write a line "fsync PATH" or "rename PATH". One
 * thread at a time. */

/* Empties the log. */
void disk_log_clear(void);

/* Fails the test unless the log has the text `first`, and after it `second`. Paths are as the
 * kernel resolves them (fsync), or the new path as given (rename); each line ends in a line break.
 */
void disk_log_expect(const char *first, const char *second);

#endif
