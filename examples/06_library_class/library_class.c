/* library_class.c - runs an actor whose class lives in a shared library. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <tandem/tandem.h>
#include <unistd.h>

/* Writes the path of the library, which lies in the folder of this program. */
static void find_library(char *path, size_t room)
{
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);

    program[length < 0 ? 0 : length] = '\0';
    *strrchr(program, '/') = '\0';
    (void)snprintf(path, room, "%s/tokens_library.so", program);
}

int main(void)
{
    char library[PATH_MAX + 32];
    tdm_runtime *runtime;
    tdm_actor *tokens;
    tdm_ref *ref;
    int64_t count;

    find_library(library, sizeof(library));
    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    TDM_CHECK(tdm_actor_create(runtime, "tokens", &(struct tdm_actor_options){.library = library},
                               &tokens, ""));
    TDM_CHECK(tdm_actor_call(tokens, "count", &ref, "s", "the class came from a library"));
    TDM_CHECK(tdm_get(ref, 10000, "i", &count));
    (void)printf("%lld words\n", (long long)count);
    tdm_ref_release(ref);
    tdm_actor_destroy(tokens);
    tdm_runtime_stop(runtime);
    return 0;
}
