# Headers, both libraries, the program and its manual pages, zonal.pc and the CMake package.
# Everything written is relative to its own place, so `cmake --install build --prefix X` works for
# any X.
include(CMakePackageConfigHelpers)

# Libraries that lie where the loader does not look, as CUDA's and cuDNN's may, are found where they
# were when this was built.
set_target_properties(zonal PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
if(TARGET zonal_cli)
    set_target_properties(zonal_cli PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
endif()

install(DIRECTORY include/zonal TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
install(TARGETS zonal zonal_static EXPORT zonalTargets)
if(TARGET zonal_cli)
    install(TARGETS zonal_cli)
    install(FILES bench/augment_torch.py bench/loss_torch.py bench/train_torch.py
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zonal/bench)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/share/man/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/zonal)
install(EXPORT zonalTargets NAMESPACE zonal:: DESTINATION ${package_dir})
configure_package_config_file(cmake/zonalConfig.cmake.in
    ${PROJECT_BINARY_DIR}/zonalConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/zonalConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/zonalConfig.cmake
    ${PROJECT_BINARY_DIR}/zonalConfigVersion.cmake DESTINATION ${package_dir})

set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_prefix /prefix/${pc_dir} /prefix)
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
list(TRANSFORM ZONAL_STATIC_LIBS PREPEND "-l" OUTPUT_VARIABLE pc_libs)
list(TRANSFORM ZONAL_STATIC_DIRS PREPEND "-L" OUTPUT_VARIABLE pc_dirs)
list(PREPEND pc_libs ${pc_dirs})
list(JOIN pc_libs " " pc_libs)
configure_file(cmake/zonal.pc.in ${PROJECT_BINARY_DIR}/zonal.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/zonal.pc DESTINATION ${pc_dir})

install(CODE "set(zonal_libdir \"${CMAKE_INSTALL_LIBDIR}\")")
install(SCRIPT cmake/ZonalInstalled.cmake)
