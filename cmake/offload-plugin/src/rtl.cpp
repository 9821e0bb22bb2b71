//===- rtl.cpp - omptarget-mpi as a plugin of LLVM's offload build --------===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From LLVM 19 on plugins are classes inside libomptarget. These here hand every
// call on to libomptarget.rtl.mpi.so, which is loaded when a process turns out to
// be part of an MPI job, and which has all the logic.
//
//===----------------------------------------------------------------------===//

#include "GlobalHandler.h"
#include "PluginInterface.h"
#include "Shared/Debug.h"
#include "Utils/ELF.h"
#include "omptarget.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Frontend/OpenMP/OMPGridValues.h"
#include "llvm/TargetParser/Host.h"

#include <cstdlib>
#include <dlfcn.h>

namespace mpi {
#include "omptarget-mpi.h"
} // namespace mpi

using namespace llvm;
using namespace llvm::omp;
using namespace llvm::omp::target::plugin;

namespace {

/// What is called of libomptarget.rtl.mpi.so, without the prefix __tgt_rtl_.
#define FOR_EACH_FUNCTION(X)                                                   \
  X(create_event)                                                              \
  X(data_alloc)                                                                \
  X(data_delete)                                                               \
  X(data_exchange_async)                                                       \
  X(data_lock)                                                                 \
  X(data_retrieve_async)                                                       \
  X(data_submit_async)                                                         \
  X(data_unlock)                                                               \
  X(deinit_device)                                                             \
  X(destroy_event)                                                             \
  X(get_function)                                                              \
  X(get_global)                                                                \
  X(init_device)                                                               \
  X(init_device_info)                                                          \
  X(is_valid_binary)                                                           \
  X(launch_kernel)                                                             \
  X(mpi_device_info)                                                           \
  X(mpi_load_binary)                                                           \
  X(number_of_devices)                                                         \
  X(query_async)                                                               \
  X(record_event)                                                              \
  X(register_lib)                                                              \
  X(sync_event)                                                                \
  X(synchronize)                                                               \
  X(unregister_lib)                                                            \
  X(wait_event)

/// The functions of libomptarget.rtl.mpi.so.
struct LibraryTy {
#define DECLARE(Name) decltype(mpi::__tgt_rtl_##Name) *Name = nullptr;
  FOR_EACH_FUNCTION(DECLARE)
#undef DECLARE

  /// Finds the library beside libomptarget, or where the loader looks else.
  Error load() {
    const char *File = "libomptarget.rtl.mpi.so";
    void *Handle = dlopen(File, RTLD_NOW | RTLD_LOCAL);
    if (!Handle)
      return createStringError(inconvertibleErrorCode(), "%s", dlerror());
#define FIND(Name)                                                             \
  Name = reinterpret_cast<decltype(Name)>(dlsym(Handle, "__tgt_rtl_" #Name));  \
  if (!Name)                                                                   \
    return createStringError(inconvertibleErrorCode(),                         \
                             "%s has no __tgt_rtl_" #Name, File);
    FOR_EACH_FUNCTION(FIND)
#undef FIND
    return Error::success();
  }
};

LibraryTy Library;

/// Turns the status of a call into an error. What failed, where and why was told
/// on stderr by the library.
Error check(int32_t Status, const char *What) {
  if (Status == OFFLOAD_SUCCESS)
    return Plugin::success();
  return Plugin::error("%s failed on an MPI device, see above", What);
}

mpi::__tgt_async_info *asMPI(__tgt_async_info *AsyncInfo) {
  return reinterpret_cast<mpi::__tgt_async_info *>(AsyncInfo);
}

mpi::__tgt_device_image *asMPI(const __tgt_device_image *Image) {
  return reinterpret_cast<mpi::__tgt_device_image *>(
      const_cast<__tgt_device_image *>(Image));
}

/// True if an MPI launcher started this process.
bool inMPIJob() {
  for (StringRef Name : split(OMPTARGET_MPI_LAUNCHER_VARIABLES, ' '))
    if (std::getenv(Name.str().c_str()))
      return true;
  return false;
}

struct MPIDeviceImageTy : public DeviceImageTy {
  using DeviceImageTy::DeviceImageTy;
  mpi::__tgt_device_binary Binary = {};
};

struct MPIKernelTy : public GenericKernelTy {
  using GenericKernelTy::GenericKernelTy;

  Error initImpl(GenericDeviceTy &, DeviceImageTy &Image) override {
    KernelEnvironment.Configuration.ExecMode = OMP_TGT_EXEC_MODE_GENERIC;
    MaxNumThreads = 1;
    return check(
        Library.get_function(static_cast<MPIDeviceImageTy &>(Image).Binary,
                             getName(), &Entry),
        "finding a kernel");
  }

  Error launchImpl(GenericDeviceTy &Device, uint32_t, uint64_t,
                   KernelArgsTy &KernelArgs, KernelLaunchParamsTy LaunchParams,
                   AsyncInfoWrapperTy &AsyncInfo) const override {
    // The classic call takes pointers and offsets from them; here they are added.
    return check(
        Library.launch_kernel(
            Device.getDeviceId(), Entry,
            static_cast<void **>(LaunchParams.Data), /*offsets=*/nullptr,
            reinterpret_cast<mpi::KernelArgs *>(&KernelArgs), asMPI(AsyncInfo)),
        "launching a kernel");
  }

private:
  void *Entry = nullptr;
};

/// No limit is known to the host, and teams are up to the device's libomp.
constexpr GV MPIGridValues = {1, 1, 1, 1, 1, 1, 1};

struct MPIDeviceTy : public GenericDeviceTy {
  MPIDeviceTy(GenericPluginTy &Plugin, int32_t DeviceId, int32_t NumDevices)
      : GenericDeviceTy(Plugin, DeviceId, NumDevices, MPIGridValues) {}

  Error initImpl(GenericPluginTy &) override {
    return check(Library.init_device(DeviceId), "starting");
  }
  Error deinitImpl() override {
    return check(Library.deinit_device(DeviceId), "ending");
  }
  Error setContext() override { return Plugin::success(); }
  std::string getComputeUnitKind() const override { return "mpi"; }

  Expected<DeviceImageTy *> loadBinaryImpl(const __tgt_device_image *TgtImage,
                                           int32_t ImageId) override {
    auto *Image = new (Plugin.allocate<MPIDeviceImageTy>())
        MPIDeviceImageTy(ImageId, *this, TgtImage);
    if (Error Err = check(Library.mpi_load_binary(DeviceId, asMPI(TgtImage),
                                                  &Image->Binary),
                          "loading an image"))
      return std::move(Err);
    return Image;
  }

  Expected<GenericKernelTy &> constructKernel(const char *Name) override {
    return *new (Plugin.allocate<MPIKernelTy>()) MPIKernelTy(Name);
  }

  void *allocate(size_t Size, void *HostPtr, TargetAllocTy Kind) override {
    return Library.data_alloc(DeviceId, Size, HostPtr, Kind);
  }
  int free(void *TgtPtr, TargetAllocTy Kind) override {
    return Library.data_delete(DeviceId, TgtPtr, Kind);
  }

  Expected<void *> dataLockImpl(void *HstPtr, int64_t Size) override {
    void *Locked = nullptr;
    if (Error Err = check(Library.data_lock(DeviceId, HstPtr, Size, &Locked),
                          "locking host memory"))
      return std::move(Err);
    return Locked;
  }
  Error dataUnlockImpl(void *HstPtr) override {
    return check(Library.data_unlock(DeviceId, HstPtr),
                 "unlocking host memory");
  }
  Expected<bool> isPinnedPtrImpl(void *, void *&, void *&,
                                 size_t &) const override {
    return false;
  }

  Error dataSubmitImpl(void *TgtPtr, const void *HstPtr, int64_t Size,
                       AsyncInfoWrapperTy &AsyncInfo) override {
    return check(Library.data_submit_async(DeviceId, TgtPtr,
                                           const_cast<void *>(HstPtr), Size,
                                           asMPI(AsyncInfo)),
                 "copying to the device");
  }
  Error dataRetrieveImpl(void *HstPtr, const void *TgtPtr, int64_t Size,
                         AsyncInfoWrapperTy &AsyncInfo) override {
    return check(Library.data_retrieve_async(DeviceId, HstPtr,
                                             const_cast<void *>(TgtPtr), Size,
                                             asMPI(AsyncInfo)),
                 "copying from the device");
  }
  Error dataExchangeImpl(const void *SrcPtr, GenericDeviceTy &DstDev,
                         void *DstPtr, int64_t Size,
                         AsyncInfoWrapperTy &AsyncInfo) override {
    return check(Library.data_exchange_async(
                     DeviceId, const_cast<void *>(SrcPtr), DstDev.getDeviceId(),
                     DstPtr, Size, asMPI(AsyncInfo)),
                 "copying between devices");
  }

  Error synchronizeImpl(__tgt_async_info &AsyncInfo) override {
    return check(Library.synchronize(DeviceId, asMPI(&AsyncInfo)),
                 "waiting for a queue");
  }
  Error queryAsyncImpl(__tgt_async_info &AsyncInfo) override {
    return check(Library.query_async(DeviceId, asMPI(&AsyncInfo)),
                 "querying a queue");
  }

  Error initAsyncInfoImpl(AsyncInfoWrapperTy &) override {
    return Plugin::success(); // The first operation makes the queue.
  }
  Error initDeviceInfoImpl(__tgt_device_info *Info) override {
    const char *Unused = nullptr;
    return check(Library.init_device_info(
                     DeviceId, reinterpret_cast<mpi::__tgt_device_info *>(Info),
                     &Unused),
                 "making an interop object");
  }

  Error createEventImpl(void **EventPtr) override {
    return check(Library.create_event(DeviceId, EventPtr), "making an event");
  }
  Error destroyEventImpl(void *EventPtr) override {
    return check(Library.destroy_event(DeviceId, EventPtr),
                 "destroying an event");
  }
  Error recordEventImpl(void *EventPtr,
                        AsyncInfoWrapperTy &AsyncInfo) override {
    return check(Library.record_event(DeviceId, EventPtr, asMPI(AsyncInfo)),
                 "recording an event");
  }
  Error waitEventImpl(void *EventPtr, AsyncInfoWrapperTy &AsyncInfo) override {
    return check(Library.wait_event(DeviceId, EventPtr, asMPI(AsyncInfo)),
                 "waiting for an event");
  }
  Error syncEventImpl(void *EventPtr) override {
    return check(Library.sync_event(DeviceId, EventPtr),
                 "waiting for an event");
  }

  Error obtainInfoImpl(InfoQueueTy &Info) override {
    auto Tell = [](void *To, const char *Name, const char *Value) {
      static_cast<InfoQueueTy *>(To)->add<InfoLevel1, std::string>(Name, Value);
    };
    return check(Library.mpi_device_info(DeviceId, Tell, &Info),
                 "asking for properties");
  }

  bool shouldSetupDeviceEnvironment() const override { return false; }
  bool shouldSetupDeviceMemoryPool() const override { return false; }
  Error getDeviceStackSize(uint64_t &Value) override { return noSize(Value); }
  Error setDeviceStackSize(uint64_t) override { return Plugin::success(); }
  Error getDeviceHeapSize(uint64_t &Value) override { return noSize(Value); }
  Error setDeviceHeapSize(uint64_t) override { return Plugin::success(); }

private:
  static Error noSize(uint64_t &Value) {
    Value = 0;
    return Plugin::success();
  }
};

struct MPIGlobalHandlerTy final : public GenericGlobalHandlerTy {
  Error getGlobalMetadataFromDevice(GenericDeviceTy &, DeviceImageTy &Image,
                                    GlobalTy &Global) override {
    void *Address = nullptr;
    if (Error Err = check(
            Library.get_global(static_cast<MPIDeviceImageTy &>(Image).Binary,
                               Global.getSize(), Global.getName().c_str(),
                               &Address),
            "finding a global"))
      return Err;
    Global.setPtr(Address);
    return Plugin::success();
  }
};

struct MPIPluginTy final : public GenericPluginTy {
  MPIPluginTy() : GenericPluginTy(getArch()) {}

  Expected<int32_t> initImpl() override {
    if (!inMPIJob())
      return 0;
    if (Error Err = Library.load()) {
#ifdef OMPTARGET_MPI_HAS_LIBRARY
      return Plugin::error("no MPI devices: %s",
                           toString(std::move(Err)).c_str());
#else
      consumeError(std::move(Err));
      return 0;
#endif
    }
    // Devices are needed until deinitImpl.
    Library.register_lib(nullptr);
    return Library.number_of_devices();
  }
  Error deinitImpl() override {
    if (!Library.unregister_lib)
      return Plugin::success();
    return check(Library.unregister_lib(nullptr), "ending");
  }

  GenericDeviceTy *createDevice(GenericPluginTy &Plugin, int32_t DeviceId,
                                int32_t NumDevices) override {
    return new MPIDeviceTy(Plugin, DeviceId, NumDevices);
  }
  GenericGlobalHandlerTy *createGlobalHandler() override {
    return new MPIGlobalHandlerTy();
  }

  uint16_t getMagicElfBits() const override {
    return utils::elf::getTargetMachine();
  }
  Triple::ArchType getTripleArch() const override { return getArch(); }
  const char *getName() const override { return GETNAME(TARGET_NAME); }

  Expected<bool> isELFCompatible(uint32_t, StringRef Image) const override {
    auto *Start = const_cast<char *>(Image.data());
    __tgt_device_image Whole = {Start, Start + Image.size(), nullptr, nullptr};
    return Library.is_valid_binary(asMPI(&Whole)) != 0;
  }

private:
  /// Devices run images of the machine that libomptarget was built for.
  static Triple::ArchType getArch() {
    return Triple(sys::getProcessTriple()).getArch();
  }
};

} // namespace

extern "C" GenericPluginTy *createPlugin_mpi() { return new MPIPluginTy(); }
