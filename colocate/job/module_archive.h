/* module_archive.h - the files of a Python module as bytes that are the same for the same files. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_MODULE_ARCHIVE_H
#define TDM_COLOCATE_JOB_MODULE_ARCHIVE_H

#include <stdint.h>
#include <tandem/value.h>

/* Most files of an archive; deepest folder in it. */
enum { TDM__MODULE_ARCHIVE_FILES_MAX = 65536, TDM__MODULE_ARCHIVE_DEPTH_MAX = 64 };

/* The file names of a folder that an archive is made of. All are borrowed. */
struct tdm__module_files {
    const char *folder; /* Path of the folder. */
    /* Names of files and folders below `folder`, such as "my_job.py" or "my_package/data". With a
     * folder all files below it are meant, except those whose name, or whose folder's name, begins
     * with a dot or is "__pycache__". */
    const char *const *names;
    uint32_t names_count; /* Number of names; 0 for everything in `folder`. */
};

/* Packs the files in the order of their paths, without times and owners, so that equal files give
 * equal bytes. A link is packed as the file to which it leads, which must be below `folder`. The
 * caller destroys the writer, whose bytes are the archive. TDM_E_LIMIT if the files have more than
 * `size_bytes_max` bytes, TDM_E_INVAL for a name that is no path below the folder, and for links to
 * folders or out of `folder`. */
tdm_status tdm__module_archive_pack(const struct tdm__module_files *files, uint64_t size_bytes_max,
                                    tdm_writer **archive_out);

/* Creates `folder`, which must not exist, with mode 0700, and the files of the archive in it, which
 * only this user can read. TDM_E_PROTOCOL, with the path, if the archive has a path that leads out
 * of the folder, or is not as tdm__module_archive_pack() makes it. On failure some files may have
 * been created. */
tdm_status tdm__module_archive_unpack(struct tdm_bytes archive, const char *folder);

#endif
