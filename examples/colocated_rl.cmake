# The job library of the colocated job, and its tests.  It needs OpenBLAS; Tandem does not.
# Its includes are written from the root; that they name nothing inside Tandem is checked by
# the test style/layers.
# SPDX-License-Identifier: Apache-2.0
set(folder ${CMAKE_CURRENT_SOURCE_DIR}/colocated_rl)
file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c ${folder}/*/*.c)
list(FILTER sources EXCLUDE REGEX "/tests/")
pkg_search_module(OPENBLAS IMPORTED_TARGET openblas blas-openblas)
if(NOT sources)
  message(STATUS "examples/colocated_rl has no sources: not built")
  return()
endif()
if(NOT OPENBLAS_FOUND)
  message(STATUS "OpenBLAS is missing: examples/colocated_rl is not built")
  return()
endif()

add_library(colocated_rl_objects OBJECT ${sources})
target_include_directories(colocated_rl_objects PUBLIC ${CMAKE_SOURCE_DIR})
target_link_libraries(colocated_rl_objects PUBLIC Tandem::tandem PkgConfig::OPENBLAS
  PkgConfig::JANSSON Threads::Threads m)
add_library(colocated_rl MODULE $<TARGET_OBJECTS:colocated_rl_objects>)
target_link_libraries(colocated_rl PRIVATE Tandem::tandem PkgConfig::OPENBLAS
  PkgConfig::JANSSON Threads::Threads m)

if(TANDEM_TESTS)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
  file(GLOB tests CONFIGURE_DEPENDS ${folder}/tests/*_test.c)
  file(GLOB support CONFIGURE_DEPENDS ${folder}/tests/*.c)
  list(FILTER support EXCLUDE REGEX "_test\\.c$")
  foreach(source ${tests})
    cmake_path(GET source STEM name)
    set(target colocated_rl_${name})
    add_executable(${target} ${source} ${support})
    target_compile_definitions(${target} PRIVATE TDM_TEST_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
      TDM_TEST_BUILD_DIR="${CMAKE_BINARY_DIR}")
    target_link_libraries(${target} PRIVATE colocated_rl_objects PkgConfig::CMOCKA)
    add_test(NAME colocated_rl/${name} COMMAND ${target})
    set_tests_properties(colocated_rl/${name} PROPERTIES LABELS "unit;colocated_rl" TIMEOUT 300
      SKIP_RETURN_CODE 77 ENVIRONMENT "OPENBLAS_NUM_THREADS=1")
  endforeach()
endif()
