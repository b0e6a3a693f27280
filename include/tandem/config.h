/* config.h - a tree of settings, read from YAML or JSON, that remembers its lines. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_CONFIG_H
#define TANDEM_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tree of settings.  One thread may use it at a time.  Only tdm_config_read() touches files;
 * no function waits for other processes. */
typedef struct tdm_config tdm_config;

/* Reads the YAML or JSON file at `path` and gives the tree to the caller, who destroys it.
 * Scalars become integers, doubles, booleans or strings by the core rules of YAML 1.2.
 * TDM_E_PROTOCOL says "job.yaml:14: ..." for wrong syntax, duplicate keys, anchors, nesting
 * over 16 levels, or a file over 1 MiB.  TDM_E_NOT_FOUND or TDM_E_IO says why the file cannot
 * be read.  On failure `*config_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_config_read(const char *path, tdm_config **config_out);
/* Parses `size_bytes` bytes of YAML or JSON at `text`, which are copied, as tdm_config_read() does.
 * `name` stands for the file in messages and is copied. */
TDM_API TDM_MUST_CHECK tdm_status tdm_config_parse(const char *text, size_t size_bytes,
                                                   const char *name, tdm_config **config_out);
/* Frees a tree of settings and all texts borrowed from it.  NULL is allowed. */
TDM_API void tdm_config_destroy(tdm_config *config);

/* Sets one value of the tree, whatever the file says: "a.b.c=value".  Maps that are missing are
 * created. The text is copied.  TDM_E_INVAL or TDM_E_TYPE says why the assignment is impossible. */
TDM_API tdm_status tdm_config_override(tdm_config *config, const char *assignment);

/* Looks up an integer by its dotted path, such as "trainer.lr" or "data.tasks.0".  If the path is
 * missing it gives `otherwise`, as the next three functions do.  A value of another type is
 * TDM_E_TYPE, with a detail like "job.yaml:9: trainer.lr wants a number, got \"fast\"";
 * `*value_out` is unchanged then. */
TDM_API tdm_status tdm_config_int(const tdm_config *config, const char *path, int64_t otherwise,
                                  int64_t *value_out);
/* Looks up a floating point number by its dotted path, like tdm_config_int(); an integer is
 * accepted. */
TDM_API tdm_status tdm_config_double(const tdm_config *config, const char *path, double otherwise,
                                     double *value_out);
/* Looks up true (1) or false (0) by its dotted path, like tdm_config_int(). */
TDM_API tdm_status tdm_config_bool(const tdm_config *config, const char *path, int otherwise,
                                   int *value_out);
/* Looks up a text by its dotted path, like tdm_config_int().  The text is borrowed from the tree.
 * `otherwise` may be NULL. */
TDM_API tdm_status tdm_config_string(const tdm_config *config, const char *path,
                                     const char *otherwise, const char **value_out);
/* Returns 1 if the tree has a value at the dotted path `path`, else 0. */
TDM_API int tdm_config_has(const tdm_config *config, const char *path);
/* Returns the number of entries of the array or map at `path`, or 0 for a path without one.  ""
 * is the root. */
TDM_API uint32_t tdm_config_count(const tdm_config *config, const char *path);
/* Returns key number `index` of the map at `path`, in the order of the file, followed by keys that
 * overrides added, or NULL past the end. The text is borrowed from the tree. */
TDM_API const char *tdm_config_key(const tdm_config *config, const char *path, uint32_t index);
/* Returns the file and line, such as "job.yaml:14", of the value at `path` or of its nearest
 * parent.  The text is valid until the next call with the same tree. */
TDM_API const char *tdm_config_where(const tdm_config *config, const char *path);

/* Writes the whole tree as JSON text, to be passed to another process.  The caller frees
 * `*text_out` with free(); it is NULL on failure. */
TDM_API tdm_status tdm_config_json(const tdm_config *config, char **text_out);

#ifdef __cplusplus
}
#endif

#endif
