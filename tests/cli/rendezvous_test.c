/* rendezvous_test.c - the place of a node is read from the environment of a launcher. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/rendezvous.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void set(const char *name, const char *value)
{
    assert_int_equal(value == NULL ? unsetenv(name) : setenv(name, value, 1), 0);
}

/* Sets the variables of the second of four tasks of a Slurm step. */
static int set_slurm(void **state)
{
    (void)state;
    set("TANDEM_LAUNCH_HEAD", NULL);
    set("SLURM_STEP_NUM_NODES", "4");
    set("SLURM_STEP_NUM_TASKS", "4");
    set("SLURM_NODEID", "1");
    set("SLURM_JOB_ID", "123");
    set("SLURM_STEP_ID", "2");
    set("SLURM_STEP_NODELIST", "gpu[07-10]");
    set("SLURMD_NODENAME", "gpu08");
    set("SLURM_CPUS_ON_NODE", "16");
    return 0;
}

static int set_launch(void **state)
{
    (void)set_slurm(state);
    set("TANDEM_LAUNCH_HEAD", "10.0.0.5:7000");
    set("TANDEM_LAUNCH_RANK", "2");
    set("TANDEM_LAUNCH_NODES", "3");
    return 0;
}

static void first_host_of_a_list_is_found(void **state)
{
    static const char *const lists[][2] = {
        {"n1", "n1"},           {"n1,n2", "n1"},
        {"n[1-4]", "n1"},       {"node[007-009,12],other", "node007"},
        {"node[3,7]", "node3"}, {"a,b[1-2]", "a"}};
    char host[CLI_HOST_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        assert_int_equal(cli_rendezvous_first_host(lists[i][0], host), TDM_OK);
        assert_string_equal(host, lists[i][1]);
    }
    assert_int_equal(cli_rendezvous_first_host("", host), TDM_E_INVAL);
    assert_int_equal(cli_rendezvous_first_host("n[1-4", host), TDM_E_INVAL);
}

static void place_in_a_slurm_step_is_found(void **state)
{
    struct cli_rendezvous rendezvous;

    (void)state;
    assert_int_equal(cli_rendezvous_read(&rendezvous), TDM_OK);
    assert_int_equal(rendezvous.rank, 1);
    assert_int_equal(rendezvous.nodes_count, 4);
    assert_string_equal(rendezvous.head_host, "gpu07");
    assert_int_equal(rendezvous.head_port, 20000 + 123 * 7 + 2);
    assert_string_equal(rendezvous.name, "gpu08");
    assert_int_equal(rendezvous.cpus_count, 16);
}

static void two_tasks_on_a_node_are_refused(void **state)
{
    struct cli_rendezvous rendezvous;

    (void)state;
    set("SLURM_STEP_NUM_TASKS", "8");
    assert_int_equal(cli_rendezvous_read(&rendezvous), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "8 tasks on 4 nodes"));
    assert_non_null(strstr(tdm_error_detail(), "--ntasks-per-node=1"));
}

static void variables_of_ones_own_come_first(void **state)
{
    struct cli_rendezvous rendezvous;

    (void)state;
    assert_int_equal(cli_rendezvous_read(&rendezvous), TDM_OK);
    assert_int_equal(rendezvous.rank, 2);
    assert_int_equal(rendezvous.nodes_count, 3);
    assert_string_equal(rendezvous.head_host, "10.0.0.5");
    assert_int_equal(rendezvous.head_port, 7000);
    set("TANDEM_LAUNCH_HEAD", "node-0.cluster");
    assert_int_equal(cli_rendezvous_read(&rendezvous), TDM_OK);
    assert_string_equal(rendezvous.head_host, "node-0.cluster");
    assert_int_equal(rendezvous.head_port, 6379);
}

static void wrong_variable_is_named(void **state)
{
    static const char *const wrong[][3] = {{"TANDEM_LAUNCH_RANK", "3", "there are 3 nodes"},
                                           {"TANDEM_LAUNCH_RANK", "x", "TANDEM_LAUNCH_RANK"},
                                           {"TANDEM_LAUNCH_NODES", NULL, "TANDEM_LAUNCH_NODES"},
                                           {"TANDEM_LAUNCH_HEAD", "h:0", "HOST:PORT"},
                                           {"TANDEM_LAUNCH_HEAD", "h:99999", "HOST:PORT"},
                                           {"TANDEM_LAUNCH_HEAD", ":7000", "0 bytes"}};
    struct cli_rendezvous rendezvous;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        (void)set_launch(state);
        set(wrong[i][0], wrong[i][1]);
        assert_int_equal(cli_rendezvous_read(&rendezvous), TDM_E_INVAL);
        assert_non_null(strstr(tdm_error_detail(), wrong[i][2]));
    }
}

static void without_a_launcher_the_remedy_is_named(void **state)
{
    struct cli_rendezvous rendezvous;

    (void)state;
    set("SLURM_STEP_ID", NULL);
    assert_int_equal(cli_rendezvous_read(&rendezvous), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "srun"));
    assert_non_null(strstr(tdm_error_detail(), "TANDEM_LAUNCH_HEAD"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_host_of_a_list_is_found),
        cmocka_unit_test_setup(place_in_a_slurm_step_is_found, set_slurm),
        cmocka_unit_test_setup(two_tasks_on_a_node_are_refused, set_slurm),
        cmocka_unit_test_setup(variables_of_ones_own_come_first, set_launch),
        cmocka_unit_test_setup(wrong_variable_is_named, set_launch),
        cmocka_unit_test_setup(without_a_launcher_the_remedy_is_named, set_slurm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
