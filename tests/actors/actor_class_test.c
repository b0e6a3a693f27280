/* actor_class_test.c - registration of actor classes, and lookup of classes and methods. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/actor_class.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static tdm_status method_without_effect(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    return TDM_OK;
}

TDM_ACTOR_CLASS(first_class,
                .methods = {{"run", method_without_effect}, {"walk", method_without_effect}});
TDM_ACTOR_CLASS(empty_class, .state_bytes = 8);
TDM_ACTOR_CLASS(open_class,
                .methods = {{"*", method_without_effect}, {"run", method_without_effect}});

static void class_is_found_by_its_name(void **state)
{
    const struct tdm_actor_class *found = tdm__class_find("first_class");

    (void)state;
    assert_non_null(found);
    assert_string_equal(found->name, "first_class");
    assert_null(tdm__class_find("first_clas"));
    assert_null(tdm__class_find(""));
}

static void method_is_found_by_its_name(void **state)
{
    const struct tdm_actor_class *class = tdm__class_find("first_class");
    struct tdm__method_index index;
    char text[64];

    (void)state;
    tdm__method_index_init(&index, class);
    assert_ptr_equal(tdm__method_find(&index, "run"), &class->methods[0]);
    assert_ptr_equal(tdm__method_find(&index, "walk"), &class->methods[1]);
    assert_null(tdm__method_find(&index, "fly"));
    tdm__method_index_init(&index, tdm__class_find("empty_class"));
    assert_null(tdm__method_find(&index, "run"));
    tdm__method_index_init(&index, tdm__class_find("open_class"));
    assert_ptr_equal(tdm__method_find(&index, "run"), &index.actor_class->methods[1]);
    assert_ptr_equal(tdm__method_find(&index, "fly"), &index.actor_class->methods[0]);
    assert_string_equal(tdm__class_methods_text(class, text, sizeof(text)), "run, walk");
    assert_string_equal(tdm__class_methods_text(class, text, 5), "run");
    assert_string_equal(tdm__class_methods_text(tdm__class_find("empty_class"), text, sizeof(text)),
                        "");
}

static void the_classes_of_a_program_are_named_without_tandems_own(void **state)
{
    char text[256];

    (void)state;
    assert_non_null(tdm__class_find("tandem.queue"));
    assert_null(strstr(tdm__classes_text(text, sizeof(text)), "tandem."));
    assert_non_null(strstr(text, "empty_class"));
}

static void full_class_finds_each_of_its_methods(void **state)
{
    static char names[TDM_METHODS_MAX][8];
    struct tdm_actor_class class = {.name = "full_class"};
    struct tdm__method_index index;

    (void)state;
    for (int i = 0; i < TDM_METHODS_MAX; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "m%d", i);
        class.methods[i].name = names[i];
    }
    tdm__method_index_init(&index, &class);
    for (int i = 0; i < TDM_METHODS_MAX; i++) {
        assert_ptr_equal(tdm__method_find(&index, names[i]), &class.methods[i]);
    }
    assert_null(tdm__method_find(&index, "m32"));
}

/* Asserts in the parent that registering the class aborts a child process, without a core file,
 * with `why` on stderr. Returns 1 if so. */
static int aborts(const struct tdm_actor_class *class, const char *why)
{
    char said[256] = "";
    int pipe_fds[2];
    int wait_status;
    pid_t child;

    assert_int_equal(pipe(pipe_fds), 0);
    child = fork();
    if (child == 0) {
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(pipe_fds[1], STDERR_FILENO);
        tdm_class_register(class);
        _exit(0);
    }
    (void)close(pipe_fds[1]);
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_true(read(pipe_fds[0], said, sizeof(said) - 1) >= 0);
    (void)close(pipe_fds[0]);
    return WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGABRT &&
           strstr(said, why) != NULL;
}

static void wrong_class_aborts_the_program(void **state)
{
    static const struct tdm_actor_class twice = {.name = "first_class"};
    static const struct tdm_actor_class nameless = {.name = ""};
    static const struct tdm_actor_class fine = {.name = "another_class"};
    static const struct tdm_actor_class long_winded = {
        .name = "a234567890123456789012345678901234567890123456789012345678901234"};

    (void)state;
    assert_true(aborts(&twice, "defined twice"));
    assert_true(aborts(&nameless, "1 to 63 bytes"));
    assert_true(aborts(&long_winded, "1 to 63 bytes"));
    assert_false(aborts(&fine, ""));
}

/* A concurrency group with the name of another would make calls ambiguous. */
static void group_has_a_name_of_its_own(void **state)
{
    static const struct tdm_actor_class taken = {.name = "taken_group",
                                                 .concurrency_groups = {{"a", 1}, {"default", 2}}};
    static const struct tdm_actor_class twice = {
        .name = "group_twice", .concurrency_groups = {{"a", 1}, {"b", 2}, {"a", 3}}};
    static const struct tdm_actor_class fine = {.name = "fine_groups",
                                                .concurrency_groups = {{"a", 1}, {"b", 2}}};

    (void)state;
    assert_true(aborts(&taken, "\"default\" is the group of methods without one"));
    assert_true(aborts(&twice, "two concurrency groups have one name"));
    assert_false(aborts(&fine, ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(class_is_found_by_its_name),
        cmocka_unit_test(method_is_found_by_its_name),
        cmocka_unit_test(the_classes_of_a_program_are_named_without_tandems_own),
        cmocka_unit_test(full_class_finds_each_of_its_methods),
        cmocka_unit_test(wrong_class_aborts_the_program),
        cmocka_unit_test(group_has_a_name_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
