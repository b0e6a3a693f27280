/* tiny.c - a job small enough for tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/tests/support/tiny.h"

#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char text[] = "trainer:\n"
                           "  num_ranks: 2\n"
                           "  max_tokens_per_gpu: 40\n"
                           "engine:\n"
                           "  num_engines: 1\n"
                           "  rollout_num_gpus_per_engine: 2\n"
                           "  max_running_requests: 12\n"
                           "  max_total_tokens: 96\n"
                           "rollout:\n"
                           "  rollout_max_prompt_len: 6\n"
                           "  rollout_max_response_len: 4\n"
                           "model:\n"
                           "  characters: \"0123<>\"\n"
                           "  hidden_size: 16\n"
                           "  num_hidden_layers: 2\n"
                           "  num_attention_heads: 4\n"
                           "  num_key_value_heads: 2\n"
                           "  head_dim: 6\n"
                           "  intermediate_size: 20\n"
                           "  max_position_embeddings: 16\n"
                           "  initializer_range: 0.3\n";

static const char *chosen = "host";

void tiny_choose(const char *machine)
{
    chosen = machine;
}

tdm_config *tiny_config(const char *const *overrides)
{
    char device[64];
    tdm_config *config;

    (void)snprintf(device, sizeof(device), "cluster.device=%s", chosen);
    TDM_CHECK(tdm_config_parse(text, sizeof(text) - 1, "tiny.yaml", &config));
    TDM_CHECK(tdm_config_override(config, device));
    for (; overrides != NULL && *overrides != NULL; overrides++) {
        TDM_CHECK(tdm_config_override(config, *overrides));
    }
    return config;
}

const struct settings *tiny_settings(void)
{
    static struct settings settings;
    tdm_config *config = tiny_config(NULL);

    TDM_CHECK(settings_read(&settings, config));
    tdm_config_destroy(config);
    return &settings;
}

static char folder[256];

static void empty_folder(void)
{
    char *const paths[] = {folder, NULL};
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    const FTSENT *entry;

    while (tree != NULL && (entry = fts_read(tree)) != NULL) {
        if (entry->fts_level > FTS_ROOTLEVEL && entry->fts_info != FTS_D) {
            (void)remove(entry->fts_accpath);
        }
    }
    if (tree != NULL) {
        (void)fts_close(tree);
    }
}

static void remove_folder(void)
{
    empty_folder();
    (void)rmdir(folder);
}

const char *tiny_folder(void)
{
    if (folder[0] == '\0') {
        (void)snprintf(folder, sizeof(folder), "/tmp/colocated_rl.XXXXXX");
        if (mkdtemp(folder) == NULL || atexit(remove_folder) != 0) {
            abort();
        }
    }
    empty_folder();
    return folder;
}
