#!/bin/sh
# Build the programs of go.mod and operator/go.mod, once, and put them with what they read into a folder:
#
#   infra/kubernetes/build.sh [FOLDER]     default: ~/.cache/multilink/kubernetes, where tests/infra looks
#
# Needs Go 1.26, 3 GB of disk, and about half an hour of one processor. Done again, it builds what changed.
set -eu
folder=$(mkdir -p "${1:-$HOME/.cache/multilink/kubernetes}" && cd "${1:-$HOME/.cache/multilink/kubernetes}" && pwd)
cd "$(dirname "$0")"
version() { go list -m -f '{{.Version}}' "$1"; }
directory() { go mod download "$1" && go list -m -f '{{.Dir}}' "$1"; }
kubernetes=$(version k8s.io/kubernetes) # v1.36.3
minor=${kubernetes#v1.} && minor=${minor%%.*}
# What the programs answer when asked for their version; without it they say v0.0.0.
stamp="-X k8s.io/component-base/version.gitVersion=$kubernetes -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$minor"
nice go build -p 1 -ldflags "-s -w $stamp" -o "$folder/" tool
stages=$(directory sigs.k8s.io/kwok)/kustomize/stage
for stage in node/fast/node-initialize node/heartbeat/node-heartbeat pod/fast/pod-ready pod/fast/pod-complete pod/fast/pod-delete; do
  echo "---" && cat "$stages/$stage.yaml"
done >"$folder/stages.yaml"
cd operator
nice go build -p 1 -ldflags "-s -w" -o "$folder/" tool
install -m 644 "$(directory github.com/ray-project/kuberay/ray-operator)"/config/crd/bases/*.yaml "$folder/"
echo "built in $folder:" && ls "$folder"
