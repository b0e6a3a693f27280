/* config_fuzz.c - no text may crash the settings reader, and its JSON reads back the same. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <tandem/config.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    char *first = NULL;
    char *second = NULL;
    tdm_config *config;
    tdm_config *copy;

    if (tdm_config_parse((const char *)bytes, size_bytes, "fuzz", &config) != TDM_OK) {
        return 0;
    }
    if (tdm_config_json(config, &first) != TDM_OK ||
        tdm_config_parse(first, strlen(first), "fuzz", &copy) != TDM_OK ||
        tdm_config_json(copy, &second) != TDM_OK || strcmp(first, second) != 0) {
        abort();
    }
    free(first);
    free(second);
    tdm_config_destroy(copy);
    tdm_config_destroy(config);
    return 0;
}
