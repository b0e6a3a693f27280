/* labels.c - labels of nodes, and the label constraints of actors. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A label is stored as its text, and the functions find name, operator and value in it whenever
 * they compare. The text was checked when it was added: NAME=value for nodes; NAME=value,
 * NAME!=value, NAME=in(a,b), NAME=exists() for constraints. A node has at most one value for each
 * name, and a set has at most TDM_LABELS_MAX entries. The functions have no state and do not block.
 */

#include "scheduler/labels.h"

#include "runtime/error.h"

#include <string.h>

/* Beginning of a constraint's value that is a list of allowed values. */
static const char list_prefix[] = "in(";
/* Value of a constraint that every node satisfies that has a label of this name. */
static const char any_value[] = "exists()";

/* Returns the length in bytes of a label's name, which ends before "=" or "!=". */
static size_t name_length(const char *text)
{
    return strcspn(text, "=!");
}

/* Returns whether the operator of a label or constraint is "!=". */
static bool is_negative(const char *text)
{
    return text[name_length(text)] == '!';
}

/* Returns the value of a label or constraint, which is the text after the operator. */
static const char *value_of(const char *text)
{
    return text + name_length(text) + (is_negative(text) ? 2 : 1);
}

/* Returns whether both labels have the same name. */
static bool same_name(const char *a, const char *b)
{
    size_t length = name_length(a);

    return name_length(b) == length && memcmp(a, b, length) == 0;
}

/* Returns whether the value of a constraint is a list "in(...)". */
static bool is_list(const char *value)
{
    return strncmp(value, list_prefix, strlen(list_prefix)) == 0;
}

/* Returns the first member of a list "in(...)". A comma or parenthesis ends the member. */
static const char *first_member(const char *list)
{
    return list + strlen(list_prefix);
}

/* Returns the length in bytes of a member of a list "in(...)". */
static size_t member_length(const char *member)
{
    return strcspn(member, ",)");
}

/* Returns the member that follows `member` in a list "in(...)"; NULL after the last one. */
static const char *next_member(const char *member)
{
    const char *end = member + member_length(member);

    return *end == ',' ? end + 1 : NULL;
}

/* Returns whether a list "in(...)" has no empty member and ends with ")". */
static bool list_is_well_formed(const char *list)
{
    const char *end = list;

    for (const char *member = first_member(list); member != NULL; member = next_member(member)) {
        if (member_length(member) == 0) {
            return false;
        }
        end = member + member_length(member);
    }
    return strcmp(end, ")") == 0;
}

/* Returns whether `value` is a member of a list "in(...)". */
static bool list_has(const char *list, const char *value)
{
    for (const char *member = first_member(list); member != NULL; member = next_member(member)) {
        if (strlen(value) == member_length(member) &&
            memcmp(value, member, member_length(member)) == 0) {
            return true;
        }
    }
    return false;
}

/* Appends a label or constraint that has been checked. Fails if the set is full or the text too
 * long. */
static tdm_status labels_append(struct tdm__labels *labels, const char *text)
{
    if (labels->count == TDM_LABELS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "label \"%.40s\": at most %d labels", text,
                         (int)TDM_LABELS_MAX);
    }
    if (strlen(text) >= TDM__LABEL_BYTES) {
        return tdm__fail(TDM_E_INVAL, "label \"%.40s…\" of %zu bytes, at most %d", text,
                         strlen(text), TDM__LABEL_BYTES - 1);
    }
    memcpy(labels->texts[labels->count++], text, strlen(text) + 1);
    return TDM_OK;
}

tdm_status tdm__labels_add(struct tdm__labels *labels, const char *text)
{
    if (name_length(text) == 0 || text[name_length(text)] != '=') {
        return tdm__fail(TDM_E_INVAL, "label \"%.60s\" is not NAME=value", text);
    }
    if (is_list(value_of(text)) || strcmp(value_of(text), any_value) == 0) {
        return tdm__fail(TDM_E_INVAL,
                         "label \"%.60s\" is a constraint: a node has exactly one value", text);
    }
    for (uint32_t i = 0; i < labels->count; i++) {
        if (same_name(labels->texts[i], text)) {
            return tdm__fail(TDM_E_INVAL, "labels \"%.60s\" and \"%.60s\": a name has one value",
                             labels->texts[i], text);
        }
    }
    return labels_append(labels, text);
}

tdm_status tdm__labels_add_constraint(struct tdm__labels *constraints, const char *text)
{
    size_t length = name_length(text);

    if (length == 0 || (text[length] != '=' && strncmp(text + length, "!=", 2) != 0)) {
        return tdm__fail(TDM_E_INVAL, "label \"%.60s\" is not NAME=value or NAME!=value", text);
    }
    if (is_list(value_of(text)) && !list_is_well_formed(value_of(text))) {
        return tdm__fail(TDM_E_INVAL, "label \"%.60s\": a list is in(a,b), without spaces", text);
    }
    return labels_append(constraints, text);
}

/* Returns whether `value`, the value of a node's label, is one that the constraint's value `wanted`
 * allows. Ignores the operator. */
static bool value_satisfies(const char *value, const char *wanted)
{
    if (strcmp(wanted, any_value) == 0) {
        return true;
    }
    return is_list(wanted) ? list_has(wanted, value) : strcmp(value, wanted) == 0;
}

/* Returns whether the node's labels satisfy one constraint. */
static bool constraint_holds(const struct tdm__labels *labels, const char *constraint)
{
    for (uint32_t i = 0; i < labels->count; i++) {
        if (same_name(labels->texts[i], constraint)) {
            return value_satisfies(value_of(labels->texts[i]), value_of(constraint)) !=
                   is_negative(constraint);
        }
    }
    return is_negative(constraint);
}

bool tdm__labels_match(const struct tdm__labels *labels, const struct tdm__labels *constraints)
{
    for (uint32_t i = 0; i < constraints->count; i++) {
        if (!constraint_holds(labels, constraints->texts[i])) {
            return false;
        }
    }
    return true;
}

/* Returns label number `index` for the encoder of a message. */
static void get_label(const void *arg, uint32_t index, void *item_out)
{
    *(const char **)item_out = ((const struct tdm__labels *)arg)->texts[index];
}

struct tdm__message_list tdm__labels_list(const struct tdm__labels *labels)
{
    return (struct tdm__message_list){.count = labels->count, .get = get_label, .arg = labels};
}

tdm_status tdm__labels_of_list(const struct tdm__message_list *list, struct tdm__labels *labels_out)
{
    struct tdm__labels labels = {0};

    for (uint32_t i = 0; i < list->count; i++) {
        const char *text;

        tdm__message_list_read(list, i, &text, sizeof(text));
        if (tdm__labels_add_constraint(&labels, text) != TDM_OK) {
            return tdm__fail(TDM_E_PROTOCOL, "label %u of %u is malformed", i, list->count);
        }
    }
    *labels_out = labels;
    return TDM_OK;
}
