{{/* A name that Services take, too: those of releases may have dots, and begin with a digit. */}}
{{- define "bmq.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := default (contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name)) .Values.fullnameOverride | replace "." "-" -}}
{{- regexMatch "^[0-9]" $full | ternary (printf "bmq-%s" $full) $full | trunc 52 | trimAll "-" -}}
{{- end -}}

{{/* The namespaces that are looked after, as JSON; empty: all. */}}
{{- define "bmq.namespaces" -}}
{{- if has "*" .Values.watchNamespaces -}}[]{{- else -}}{{ .Values.watchNamespaces | default (list .Release.Namespace) | toJson }}{{- end -}}
{{- end -}}

{{- define "bmq.selector" -}}
app.kubernetes.io/name: bmq-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "bmq.labels" -}}
{{ include "bmq.selector" . }}
app.kubernetes.io/part-of: bmq
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The chart's own labels of an object, and those that its values give it, which go before. */}}
{{- define "bmq.labelsWith" -}}
{{ toYaml (merge (dict) (default (dict) .more) (include "bmq.labels" .root | fromYaml)) }}
{{- end -}}

{{/* Those of the operator's pods. */}}
{{- define "bmq.podLabels" -}}
{{- $selector := include "bmq.selector" . | fromYaml -}}
{{- range $name, $_ := .Values.podLabels }}{{ if hasKey $selector $name }}{{ fail (printf "podLabels: %s is how the operator's pods are found: leave it out" $name) }}{{ end }}{{ end -}}
{{ toYaml (merge $selector .Values.podLabels (dict "app.kubernetes.io/part-of" "bmq")) }}
{{- end -}}

{{/* The operator's. A Cluster's is called as the Cluster, which may well be called as the release. Where others make the roles, those name what it was called always. */}}
{{- define "bmq.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (printf "%s%s" (include "bmq.fullname" .) (.Values.rbac.create | ternary "-operator" "")) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "bmq.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{/* A text as the value of a variable: the kubelet takes $$ for $, and $(NAME) for the value of another one. */}}
{{- define "bmq.literal" -}}
{{ replace "$" "$$" . }}
{{- end -}}

{{/* What the operator is told of Spark, as JSON. */}}
{{- define "bmq.spark" -}}
{{- $spark := .Values.spark -}}
{{- dict "enabled" $spark.enabled "image" (printf "%s:%s" $spark.image.repository (default .Chart.AppVersion $spark.image.tag)) "pullPolicy" $spark.image.pullPolicy "pullSecrets" $spark.pullSecrets "serviceAccount" $spark.serviceAccount.name "version" $spark.version "driver" $spark.driver "executor" $spark.executor "conf" $spark.conf "eventLog" $spark.eventLog "metrics" $spark.metrics | toJson -}}
{{- end -}}

{{/* What the operator is told of sidecars of Databus, as JSON; the names are those in databus.yaml. */}}
{{- define "bmq.databus" -}}
{{- $injection := .Values.databus.injection -}}
{{- dict "enabled" $injection.enabled "listen" "0.0.0.0:8443" "name" (include "bmq.databusName" .) "webhook" (include "bmq.databusWebhook" .) "image" $injection.image "pullPolicy" .Values.image.pullPolicy "resources" $injection.resources "metrics" $injection.metrics "upgradeRunning" $injection.upgradeRunning | toJson -}}
{{- end -}}

{{/* The webhook's Service, and the Secret with its certificate. */}}
{{- define "bmq.databusName" -}}
{{ include "bmq.fullname" . }}-databus
{{- end -}}

{{- define "bmq.databusWebhook" -}}
{{ .Release.Namespace }}-{{ include "bmq.databusName" . }}
{{- end -}}

{{- define "bmq.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "bmq.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Where the pods of hooks and tests run, as the operator's. */}}
{{- define "bmq.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}
