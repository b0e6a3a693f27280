/* job_contents.h - the files of a job that the driver gives to ranks on other nodes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_JOB_CONTENTS_H
#define TDM_COLOCATE_JOB_JOB_CONTENTS_H

#include "colocate/job/job_file.h"
#include "runtime/content_hash.h"
#include "runtime/id.h"
#include "runtime/messages/messages.h"

#include <tandem/actor.h>

/* Most bytes of one content, which the driver keeps in memory for as long as the job runs. */
#define TDM__JOB_CONTENT_BYTES_MAX ((uint64_t)512 << 20)

/* A file, or the archive of a Python library's modules, that the driver has read. */
struct tdm__job_content {
    char path[TDM__PATH_BYTES]; /* Path of the file or of the modules' folder; "" if there is none.
                                 */
    char *names_text;           /* Owned text to which `names` refer; NULL for a file. */
    const char **names;         /* Owned array of the names below `path`; NULL for a file. */
    uint32_t names_count;       /* Number of elements of `names`; 0 for a file. */
    char *file_bytes;           /* Owned bytes of a file; NULL for an archive. */
    tdm_writer *archive;        /* Owned archive; NULL for a file. */
    struct tdm_bytes bytes;     /* The bytes, borrowed from one of the two members above. */
    struct tdm__content_hash hash; /* Hash of the bytes. */
    tdm_ref *ref;                  /* Owned value with the bytes; NULL while it is not published. */
    struct tdm_portable reference; /* Portable form of `ref`. */
};

/* The contents of one job. The controller owns them; all members are 0 before they are read. */
struct tdm__job_contents {
    struct tdm__job_content library;      /* The job library, or the modules of one in Python. */
    struct tdm__job_content model_config; /* The file model.config. */
    bool is_read;                         /* True once the files have been read. */
    char node[TDM__ID_TEXT_BYTES];        /* ID of this node while they are published. */
};

/* Reads the files that the job names. They stay in memory, so that all ranks get the same contents,
 * also those that are created after the files were changed. A module that is not in the folder of
 * the job file is not read. TDM_E_LIMIT for a file of more than TDM__JOB_CONTENT_BYTES_MAX bytes;
 * other errors name the file that cannot be read, or that an archive does not allow. */
tdm_status tdm__job_contents_read(const struct tdm__job_spec *spec,
                                  struct tdm__job_contents *contents);
/* Puts the contents that were read into the memory of this node, from which other nodes fetch them.
 * The memory counts as that of any other value. Blocks while other values are moved to disk. */
tdm_status tdm__job_contents_publish(struct tdm__job_contents *contents, tdm_runtime *runtime);
/* Removes the contents from the memory of the node. Called before the runtime stops. */
void tdm__job_contents_withdraw(struct tdm__job_contents *contents);
/* Frees everything. */
void tdm__job_contents_fini(struct tdm__job_contents *contents);

/* Adds the published contents to the arguments of a rank, which borrow them. NULL, or contents that
 * are not published, add nothing. */
void tdm__job_contents_describe(const struct tdm__job_contents *contents,
                                struct tdm__rank_arguments_message *arguments);

#endif
