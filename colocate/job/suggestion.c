/* suggestion.c - "did you mean": finds the known word that is closest to a mistyped one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/suggestion.h"

#include <string.h>

/* Longest word that is compared, in bytes. */
enum { WORD_BYTES_MAX = 64 };

/* Returns the smallest of three numbers. */
static size_t min_of_three(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;

    return least < c ? least : c;
}

/* Returns the number of insertions, deletions and replacements between two words (Levenshtein
 * distance). */
static size_t edit_distance(const char *from, const char *to)
{
    size_t row[WORD_BYTES_MAX + 1];
    size_t to_bytes = strlen(to);

    for (size_t i = 0; i <= to_bytes; i++) {
        row[i] = i;
    }
    for (size_t i = 0; from[i] != '\0'; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < to_bytes; j++) {
            size_t above = row[j + 1];

            row[j + 1] = min_of_three(above + 1, row[j] + 1, diagonal + (from[i] != to[j]));
            diagonal = above;
        }
    }
    return row[to_bytes];
}

const char *tdm__suggestion_find(const char *text, const char *const *known, size_t known_count)
{
    size_t least = strlen(text) / 3 + 1;
    const char *nearest = NULL;

    if (strlen(text) > WORD_BYTES_MAX) {
        return NULL;
    }
    for (size_t i = 0; i < known_count; i++) {
        size_t distance = strlen(known[i]) > WORD_BYTES_MAX ? least : edit_distance(text, known[i]);

        if (distance < least) {
            least = distance;
            nearest = known[i];
        }
    }
    return nearest;
}
