{{/* The name of the chart, or the one that replaces it. */}}
{{- define "postern.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/*
The name of the objects. It has at most 52 characters, because the name of a pod's revision label is longer. It has no
dots, because a Service has this name.
*/}}
{{- define "postern.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "postern.name" . -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- if contains $name $release -}}
{{- $release | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" $release $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The labels that never change: the selector of a StatefulSet is immutable. */}}
{{- define "postern.selectorLabels" -}}
app.kubernetes.io/name: {{ include "postern.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "postern.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{ include "postern.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/component: server
{{- end -}}

{{/* The labels of the chart together with labels from the values, which win. */}}
{{- define "postern.labelsWith" -}}
{{- toYaml (merge (dict) (default (dict) .more) (include "postern.labels" .root | fromYaml)) -}}
{{- end -}}

{{/* The name, the namespace and the labels of an object. */}}
{{- define "postern.metadata" -}}
name: {{ include "postern.fullname" . | quote }}
namespace: {{ .Release.Namespace | quote }}
labels:
  {{- include "postern.labels" . | nindent 2 }}
{{- end -}}

{{/* A digest wins over a tag. */}}
{{- define "postern.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "postern.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "postern.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The URL under which clients reach the server: also the issuer of endpoint tokens. */}}
{{- define "postern.externalUrl" -}}
{{- if .Values.externalUrl -}}
{{- .Values.externalUrl -}}
{{- else -}}
{{- $host := printf "%s.%s.svc" (include "postern.fullname" .) .Release.Namespace -}}
{{- with .Values.hosts }}{{ $host = first . }}{{ end -}}
{{- if contains ":" $host }}{{ $host = printf "[%s]" $host }}{{ end -}}
{{- $public := or .Values.ingress.enabled .Values.tlsRoute.enabled -}}
{{- $port := .Values.service.port | int -}}
{{- if or $public (eq $port 443) -}}
https://{{ $host }}
{{- else -}}
https://{{ $host }}:{{ $port }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The names of the server. The first one is in the administrator's kubeconfig, which commands in the pod of a StatefulSet use. It is
127.0.0.1 while the certificate is self-signed. A given certificate rarely covers that: then it is the first of hosts,
which hostAliases resolves to 127.0.0.1 in the pod.
*/}}
{{- define "postern.hosts" -}}
{{- $service := printf "%s.%s" (include "postern.fullname" .) .Release.Namespace -}}
{{- $own := list (printf "%s.svc" $service) (printf "%s.svc.%s" $service (default "cluster.local" .Values.clusterDomain)) -}}
{{- $first := ternary (list "127.0.0.1") (list) (empty .Values.tls.secretName) -}}
{{- concat $first (default (list) .Values.hosts) $own | uniq | toJson -}}
{{- end -}}

{{/* A name that the server certificate covers: of a given certificate, only hosts are known. */}}
{{- define "postern.certificateName" -}}
{{- if and .Values.tls.secretName .Values.hosts -}}
{{- first .Values.hosts -}}
{{- else -}}
{{- printf "%s.%s.svc" (include "postern.fullname" .) .Release.Namespace -}}
{{- end -}}
{{- end -}}

{{/* The hosts that are names: a TLS handshake has no address, so nothing forwards by one. */}}
{{- define "postern.names" -}}
{{- $names := list -}}
{{- range .Values.hosts -}}
{{- if not (regexMatch "^[0-9.]+$|:" .) }}{{ $names = append $names . }}{{ end -}}
{{- end -}}
{{- uniq $names | toJson -}}
{{- end -}}

{{/* The settings file. */}}
{{- define "postern.settings" -}}
{{- $settings := dict
    "host" (include "postern.hosts" . | fromJsonArray)
    "external-url" (include "postern.externalUrl" .) -}}
{{- if .Values.tls.secretName -}}
{{- $_ := set $settings "tls-cert-file" "/etc/postern/tls/tls.crt" -}}
{{- $_ := set $settings "tls-key-file" "/etc/postern/tls/tls.key" -}}
{{- end -}}
{{- if .Values.auditPolicy -}}
{{- $_ := set $settings "audit-policy-file" "/etc/postern/settings/audit-policy.yaml" -}}
{{- end -}}
{{- $defaults := dict -}}
{{- if .Values.store.url -}}
{{- $settings = merge $settings (include "postern.storeSettings" . | fromJson) -}}
{{- /* A pod of a Deployment has no volume that outlives it, so the records go to where its log goes. */ -}}
{{- $_ := set $defaults "audit-log-path" "-" -}}
{{- end -}}
{{- toYaml (merge $settings .Values.settings $defaults) -}}
{{- end -}}

{{/* The settings of a shared store. */}}
{{- define "postern.storeSettings" -}}
{{- $settings := dict "store" .Values.store.url -}}
{{- if .Values.store.caSecret.name -}}
{{- $_ := set $settings "etcd-ca-file" (printf "/etc/postern/etcd-ca/%s" .Values.store.caSecret.key) -}}
{{- end -}}
{{- if .Values.store.clientCertificateSecret.name -}}
{{- $_ := set $settings "etcd-cert-file" "/etc/postern/etcd-client/tls.crt" -}}
{{- $_ := set $settings "etcd-key-file" "/etc/postern/etcd-client/tls.key" -}}
{{- end -}}
{{- if .Values.store.user -}}
{{- $_ := set $settings "etcd-user" .Values.store.user -}}
{{- $_ := set $settings "etcd-password-file" (printf "/etc/postern/etcd-password/%s" .Values.store.passwordSecret.key) -}}
{{- end -}}
{{- toJson $settings -}}
{{- end -}}

{{/* The Secrets of a shared store, by the names of their directories below /etc/postern. */}}
{{- define "postern.storeSecrets" -}}
{{- $secrets := dict -}}
{{- if .Values.store.url -}}
{{- with .Values.store.caSecret.name }}{{ $_ := set $secrets "etcd-ca" . }}{{ end -}}
{{- with .Values.store.clientCertificateSecret.name }}{{ $_ := set $secrets "etcd-client" . }}{{ end -}}
{{- with .Values.store.passwordSecret.name }}{{ $_ := set $secrets "etcd-password" . }}{{ end -}}
{{- with .Values.keyring.secretName }}{{ $_ := set $secrets "keyring" . }}{{ end -}}
{{- end -}}
{{- toJson $secrets -}}
{{- end -}}

{{/* The ports of the members of etcd. A member without one has etcd's own. */}}
{{- define "postern.storePorts" -}}
{{- $ports := list -}}
{{- $members := .Values.store.url | trimPrefix "etcd://" | splitList "/" | first -}}
{{- range splitList "," $members -}}
{{- $port := regexFind ":[0-9]+$" . | trimPrefix ":" | default "2379" -}}
{{- $ports = append $ports (int $port) -}}
{{- end -}}
{{- $ports | uniq | toJson -}}
{{- end -}}

{{/* One entry of volumeClaimTemplates. */}}
{{- define "postern.claim" -}}
- metadata:
    name: {{ .name }}
    labels:
      {{- include "postern.selectorLabels" .root | nindent 6 }}
    {{- with .claim.annotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .claim.storageClassName }}
    storageClassName: {{ . | quote }}
    {{- end }}
    resources:
      requests:
        storage: {{ .claim.size | quote }}
{{- end -}}

{{/* kube-apiserver 1.20 has the older version alone. */}}
{{- define "postern.policyVersion" -}}
{{- if .Capabilities.APIVersions.Has "policy/v1" }}policy/v1{{ else }}policy/v1beta1{{ end -}}
{{- end -}}

{{/* Values that contradict each other end the rendering with a message. */}}
{{- define "postern.check" -}}
{{- if and (or .Values.ingress.enabled .Values.tlsRoute.enabled) (not (include "postern.names" . | fromJsonArray)) -}}
{{- fail "hosts has no name: ingress and tlsRoute forward by the name in the TLS handshake, so add one" -}}
{{- end -}}
{{- if and .Values.tlsRoute.enabled (not .Values.tlsRoute.parentRefs) -}}
{{- fail "tlsRoute.parentRefs is empty: name the Gateway with a listener of protocol TLS and mode Passthrough" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.controller) (not .Values.ingress.annotations) -}}
{{- fail "ingress needs TLS passthrough: set ingress.controller to nginx or haproxy, or ingress.annotations to those of your controller" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.storePeers (not (and .Values.store.url .Values.networkPolicy.egress)) -}}
{{- fail "networkPolicy.storePeers is added to networkPolicy.egress with store.url: set both, or remove networkPolicy.storePeers" -}}
{{- end -}}
{{- include "postern.checkNames" . -}}
{{- include "postern.checkService" . -}}
{{- include "postern.checkForm" . -}}
{{- include "postern.checkMetrics" . -}}
{{- end -}}

{{/* Names that Kubernetes refuses, and keys that the chart needs for itself. */}}
{{- define "postern.checkNames" -}}
{{- $name := include "postern.fullname" . -}}
{{- if not (regexMatch "^[a-z]" $name) -}}
{{- fail (printf "the name of the objects is %s, and the name of a Service begins with a letter: set fullnameOverride" $name) -}}
{{- end -}}
{{- range $label := list "app.kubernetes.io/name" "app.kubernetes.io/instance" -}}
{{- if hasKey (default (dict) $.Values.podLabels) $label -}}
{{- fail (printf "podLabels has %s: the chart finds its pods by this label, so remove it" $label) -}}
{{- end -}}
{{- end -}}
{{- if hasKey (default (dict) .Values.podAnnotations) "checksum/settings" -}}
{{- fail "podAnnotations has checksum/settings: the chart sets this annotation, so remove it" -}}
{{- end -}}
{{- end -}}

{{/* Fields that a Service of another type does not have. */}}
{{- define "postern.checkService" -}}
{{- with .Values.service -}}
{{- if and (eq .type "ClusterIP") (or .nodePort .externalTrafficPolicy) -}}
{{- fail "service.type is ClusterIP, and service.nodePort and service.externalTrafficPolicy need NodePort or LoadBalancer: change the type, or remove them" -}}
{{- end -}}
{{- if and (ne .type "LoadBalancer") .loadBalancerSourceRanges -}}
{{- fail "service.loadBalancerSourceRanges needs the service.type LoadBalancer: change the type, or remove them" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Prometheus needs a permission. */}}
{{- define "postern.checkMetrics" -}}
{{- with .Values.metrics.serviceMonitor -}}
{{- if and .enabled (not .tokenSecret.name) -}}
{{- fail "metrics.serviceMonitor.tokenSecret.name is empty: create a Secret with an access key that may read /metrics" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Either one server with a database on a volume, or several servers with a store on etcd. */}}
{{- define "postern.checkForm" -}}
{{- $store := .Values.store -}}
{{- if $store.url -}}
{{- if ne (toJson .Values.persistence) (include "postern.noPersistence" .) -}}
{{- fail "persistence is for the database of one server, and store.url puts the data into etcd: remove one of them" -}}
{{- end -}}
{{- if not .Values.hosts -}}
{{- fail "hosts is empty: name the servers as clients do" -}}
{{- end -}}
{{- if eq (empty .Values.keyring.secretName) (empty .Values.keyring.source) -}}
{{- fail "set exactly one of keyring.secretName and keyring.source: all servers need the keyring that postern init has made" -}}
{{- end -}}
{{- if ne (empty $store.user) (empty $store.passwordSecret.name) -}}
{{- fail "set both store.user and store.passwordSecret.name, or neither" -}}
{{- end -}}
{{- if not (or $store.caSecret.name (regexMatch "^etcd://(127[.]|localhost|[[]::1[]])" $store.url)) -}}
{{- fail "store.caSecret.name is empty: connections to etcd need TLS, so create a Secret with the authority of its certificates" -}}
{{- end -}}
{{- else -}}
{{- if gt (.Values.replicas | default 1 | int) 1 -}}
{{- fail "replicas is for several servers with a store on etcd: set store.url, or remove replicas, since a database on a volume has one server" -}}
{{- end -}}
{{- $unused := list .Values.keyring.secretName .Values.keyring.source $store.user $store.caSecret.name $store.clientCertificateSecret.name $store.passwordSecret.name | compact -}}
{{- if $unused -}}
{{- fail "store.url is empty, and the other values of store and keyring need it: set it to etcd://HOST:PORT,HOST:PORT/PREFIX" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The values of persistence without any of the user's. A case of the tests finds a difference to values.yaml. */}}
{{- define "postern.noPersistence" -}}
{{- $claim := dict "storageClassName" "" "annotations" (dict) -}}
{{- dict
    "data" (merge (dict "size" "10Gi") $claim)
    "keys" (merge (dict "size" "1Gi" "enabled" true) $claim)
    "backup" (merge (dict "size" "20Gi" "enabled" false) $claim) | toJson -}}
{{- end -}}
