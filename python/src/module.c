/* module.c - the extension module tandem._tandem: Tandem's C interface for Python. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tandem._tandem",
    .m_doc = "Tandem's C interface for Python. The package tandem.ray is built on it.",
    .m_size = -1,
};

/* Adds the integers that Python needs by name. */
static int add_constants(PyObject *module)
{
/* Adds one status as an integer. */
#define X(name, value, text)                                                                       \
    if (PyModule_AddIntConstant(module, #name + 4, value) < 0) {                                   \
        return -1;                                                                                 \
    }
    TDM_STATUS_MAP(X)
#undef X
    return 0;
}

/* Called by Python's import. */
PyMODINIT_FUNC PyInit__tandem(void);
PyMODINIT_FUNC PyInit__tandem(void)
{
    PyObject *module = PyModule_Create(&module_definition);

    if (module == NULL || add_constants(module) < 0 ||
        PyModule_AddFunctions(module, binding_runtime_methods) < 0 ||
        PyModule_AddFunctions(module, binding_failure_methods) < 0 || !binding_value_init(module) ||
        !binding_ref_init(module) || !binding_actor_init(module) || !binding_group_init(module) ||
        !binding_call_init(module) || !binding_notify_init(module) || !binding_state_init(module) ||
        !binding_region_init(module) || !binding_outside_memory_init(module) ||
        !binding_collective_init(module) || !binding_job_init(module) ||
        !binding_address_init(module) || !binding_allocator_init(module) ||
        !binding_weights_init(module)) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
