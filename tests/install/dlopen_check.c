/* dlopen_check.c - a program without libtandem that loads it at run time, as an extension of an
 * interpreter does. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The program does not link libtandem. dlopen() of a library whose thread-local storage must lie in
 * the static TLS block fails once the few spare bytes of that block are used up, which is the case
 * in most interpreters. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

/* Type of tdm_error_detail(). */
typedef const char *error_detail_fn(void);
/* Type of tdm_strerror(); the argument is a tdm_status. */
typedef const char *strerror_fn(int status);

/* Thread function: uses thread-local storage of the library in a new thread. `arg` points to an
 * error_detail_fn pointer. Returns NULL if the text is empty, else `arg`. */
static void *read_detail(void *arg)
{
    error_detail_fn **error_detail = arg;

    return (*error_detail)()[0] == '\0' ? NULL : arg;
}

/* Usage: dlopen_check PATH_OF_LIBTANDEM. Exits with 0 if the library works in two threads. */
int main(int argc, char **argv)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    error_detail_fn *error_detail;
    strerror_fn *text_of_status;
    void *result = NULL;
    pthread_t thread;

    if (library == NULL) {
        (void)fprintf(stderr, "dlopen failed: %s\n", argc == 2 ? dlerror() : "no path was given");
        return 1;
    }
    *(void **)&error_detail = dlsym(library, "tdm_error_detail");
    *(void **)&text_of_status = dlsym(library, "tdm_strerror");
    if (error_detail == NULL || text_of_status == NULL || text_of_status(0)[0] == '\0') {
        (void)fprintf(stderr, "the library does not have the functions of <tandem/error.h>\n");
        return 1;
    }
    if (pthread_create(&thread, NULL, read_detail, &error_detail) != 0 ||
        pthread_join(thread, &result) != 0 || result != NULL || error_detail()[0] != '\0') {
        (void)fprintf(stderr, "thread-local storage of the library does not work\n");
        return 1;
    }
    (void)printf("loaded\n");
    return 0;
}
