/* library.c - loads NCCL's library at run time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/nccl/library.h"

#include "runtime/error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

/* The NCCL library of this process. The lock protects it until `ready` is set; a failed load is
 * tried again. */
static struct {
    pthread_mutex_t lock;
    bool ready;                     /* True once all functions were found. */
    struct tdm__nccl_library calls; /* NCCL's functions. */
} nccl_library_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Looks up all functions of NCCL in the library; optional ones may be missing. */
static tdm_status library_find_calls(void *library, const char *path)
{
    /* POSIX allows function pointers in void pointers; C has no conversion for them. */
#define X(name, arguments) *(void **)&nccl_library_state.calls.name = dlsym(library, #name);
    NCCL_OPTIONAL_CALLS(X)
#undef X
#define X(name, arguments)                                                                         \
    *(void **)&nccl_library_state.calls.name = dlsym(library, #name);                              \
    if (nccl_library_state.calls.name == NULL) {                                                   \
        return tdm__fail(TDM_E_UNSUPPORTED, "%s has no " #name ": NCCL 2.18 is needed", path);     \
    }
    NCCL_CALLS(X)
    NCCL_TEXT_CALLS(X)
#undef X
    return TDM_OK;
}

/* Opens the library and looks up its functions. The library stays open until the process ends. */
static tdm_status library_load(void)
{
    const char *path = getenv("TANDEM_NCCL_LIBRARY");
    void *library;
    tdm_status status;

    path = path != NULL ? path : "libnccl.so.2";
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return tdm__fail(TDM_E_UNSUPPORTED, "no NCCL: %s", dlerror());
    }
    status = library_find_calls(library, path);
    if (status != TDM_OK) {
        (void)dlclose(library);
    }
    return status;
}

tdm_status tdm__nccl_library(const struct tdm__nccl_library **library_out)
{
    tdm_status status = TDM_OK;

    (void)pthread_mutex_lock(&nccl_library_state.lock);
    if (!nccl_library_state.ready) {
        status = library_load();
        nccl_library_state.ready = status == TDM_OK;
    }
    (void)pthread_mutex_unlock(&nccl_library_state.lock);
    if (status == TDM_OK) {
        *library_out = &nccl_library_state.calls;
    }
    return status;
}
