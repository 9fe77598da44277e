# CMake toolchain for arm64 Linux with Debian's cross compiler; scripts/build-device.sh uses it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# llama-cpp-sys-2 asks for plain armv8-a on arm64 Linux, whatever the environment says. What is forced here wins,
# and nothing of llama.cpp is changed for it.
if(DEFINED ENV{GGML_CPU_ARM_ARCH})
  set(GGML_CPU_ARM_ARCH "$ENV{GGML_CPU_ARM_ARCH}" CACHE STRING "" FORCE)
endif()
