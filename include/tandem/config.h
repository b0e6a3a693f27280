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

typedef struct tdm_config tdm_config;

/* Reads a YAML file (JSON is YAML).  Scalars become integers, doubles, booleans or strings by
 * YAML 1.2's core rules.  TDM_E_PROTOCOL "job.yaml:14: …" for syntax, duplicate keys, anchors,
 * nesting over 16 levels or a file over 1 MiB. */
TDM_API tdm_status tdm_config_read(const char *path, tdm_config **config_out);
/* The same from memory; `name` stands for the file in messages. */
TDM_API tdm_status tdm_config_parse(const char *text, size_t size_bytes, const char *name,
                                    tdm_config **config_out);
TDM_API void tdm_config_destroy(tdm_config *config); /* NULL is allowed */

/* Sets "a.b.c=value" over what the file says; missing maps are made. */
TDM_API tdm_status tdm_config_override(tdm_config *config, const char *assignment);

/* Look-ups by dotted path ("trainer.lr", "data.tasks.0").  A missing path gives `otherwise`; a
 * value of the wrong type is TDM_E_TYPE "job.yaml:9: trainer.lr wants a number, got \"fast\"".
 */
TDM_API tdm_status tdm_config_int(const tdm_config *config, const char *path, int64_t otherwise,
                                  int64_t *value_out);
TDM_API tdm_status tdm_config_double(const tdm_config *config, const char *path,
                                     double otherwise, double *value_out);
TDM_API tdm_status tdm_config_bool(const tdm_config *config, const char *path, int otherwise,
                                   int *value_out);
/* The text is borrowed from the config. */
TDM_API tdm_status tdm_config_string(const tdm_config *config, const char *path,
                                     const char *otherwise, const char **value_out);
TDM_API int tdm_config_has(const tdm_config *config, const char *path);
/* Entries of the array or map at `path` ("" is the root); 0 if there is none. */
TDM_API uint32_t tdm_config_count(const tdm_config *config, const char *path);
/* Key number `index` of the map at `path`, in the order of the file; NULL past the end. */
TDM_API const char *tdm_config_key(const tdm_config *config, const char *path, uint32_t index);
/* "job.yaml:14" for the value at `path` (or its nearest parent); borrowed until the next call.
 */
TDM_API const char *tdm_config_where(const tdm_config *config, const char *path);

/* The whole tree as JSON text, to be handed to another process; free() it. */
TDM_API tdm_status tdm_config_json(const tdm_config *config, char **text_out);

#ifdef __cplusplus
}
#endif

#endif
