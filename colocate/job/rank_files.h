/* rank_files.h - where a rank finds the files of its job on its node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_RANK_FILES_H
#define TDM_COLOCATE_JOB_RANK_FILES_H

#include "colocate/job/content_cache.h"
#include "colocate/job/library.h"
#include "runtime/messages/messages.h"

#include <tandem/runtime.h>

/* The files of a rank. The rank owns them until its process ends, so that the cache of the node
 * keeps what it has. */
struct tdm__rank_files {
    /* The library, or the folder with its modules if it is in Python. The path is "" if the modules
     * are found by their names, as on the driver's node. */
    struct tdm__cached_content library;
    /* The file model.config; its path is "" if the job has none. */
    struct tdm__cached_content model_config;
    /* True if the library is in Python. */
    bool is_python;
};

/* Finds the files that the arguments of a rank name, and opens the job library. A file at the
 * original path is used if it has the hash that the driver has announced, and if either this is the
 * driver's node or no other user can change it. Otherwise the file comes from the cache of this
 * node, which fetches it from the driver; `config`, the settings of the job, then has the new path
 * of model.config. Blocks meanwhile. TDM_E_CHECKSUM if fetched bytes have another hash. All errors
 * name the file. */
tdm_status tdm__rank_files_open(tdm_runtime *runtime,
                                const struct tdm__rank_arguments_message *arguments,
                                tdm_config *config, struct tdm__rank_files *files,
                                struct tdm__job_library *library_out);
/* Returns the folder with the modules of a library in Python, for struct tdm_rank_context; NULL if
 * they are found by their names. */
const char *tdm__rank_files_module_folder(const struct tdm__rank_files *files);

/* Where a content is looked for, and how it is fetched. tdm__rank_files_open() fills it; tests have
 * values of their own. */
struct tdm__content_place {
    const char *node_directory; /* Directory of this node. */
    const char *node_id;        /* ID of this node. */
    /* Callback that gets the bytes; NULL to fetch them by the reference in the message. */
    tdm_status (*fetch)(void *arg, struct tdm_bytes *bytes_out);
    void *arg; /* First argument of `fetch`. */
};
/* Writes the path of one content to `content_out`, whose path is "" if the content is a module
 * archive and the modules at the original path are to be used. */
tdm_status tdm__rank_files_locate(const struct tdm__job_content_message *message,
                                  const struct tdm__content_place *place,
                                  struct tdm__cached_content *content_out);

#endif
